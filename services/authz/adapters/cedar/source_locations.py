"""Finds the line and column that a message of Cedar's parser or validator is about."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches

import cedarpy

from services.authz.adapters.cedar.tokenizer import PolicyText, Token, find_unterminated_string, tokenize
from services.authz.domain.policies.model import PolicyProblem

_END_OF_INPUT = "unexpected end of input"
_FOR_POLICY = re.compile(r"^for policy `[^`]*`, ")
_INTERNAL = re.compile(r"__cedar::internal::(?:True|False)")
_ENTITY_TYPE = re.compile(r" (?:on entity type `[^`]*`|in context for Action::\"[^\"]*\") not found$")
_QUOTED = re.compile(r"`([^`]+)`")
_NAMED = re.compile(r"(?:annotation|condition|effect): @?(\S+)$")
_CONSEQUENTIAL = "unable to find an applicable action"
_PREFIX = "permit (principal, action, resource) when { "
_MAX_TRIED_TOKENS = 500
_CONNECTIVES = frozenset({"&&", "||"})

Validate = Callable[[str], Sequence[str]]
"""Returns the validator's messages about a policy text."""


def find_syntax_problem(policy: PolicyText) -> PolicyProblem | None:
    """Return why a policy cannot be parsed, and where; None if it can be parsed."""
    size_problem = policy.size_problem()
    if size_problem is not None:
        return _problem(policy, size_problem[1], "", "size", size_problem[0])
    message = _parse(policy.text)
    if message is None:
        return None
    if (string := find_unterminated_string(policy.tokens)) is not None:
        return _problem(policy, string.start, "", "syntax", "the string that starts here does not end on its line")
    return _problem(policy, _error_offset(policy, message), "", "syntax", message)


def type_problems(
    policy: PolicyText, policy_id: str, messages: Iterable[str], validate: Validate
) -> Iterator[PolicyProblem]:
    """Yield the validator's messages about a policy without duplicates, each with its location."""
    simplified = [_simplify(message) for message in messages]
    causes = [message for message in simplified if not message.startswith(_CONSEQUENTIAL)] or simplified
    # The validator repeats a missing attribute for each type of principal and each action.
    for message in dict.fromkeys(_ENTITY_TYPE.sub(" does not exist", cause) for cause in causes):
        token = _named_token(policy, message) or _smallest_operand(policy, message, validate)
        start = token.start if token else policy.tokens[0].start
        yield _problem(policy, start, policy_id, "type", message)


def with_suggestion(message: str, known: Iterable[str]) -> str:
    """Add the closest known attribute to a message about an unknown one."""
    named = _QUOTED.search(message)
    if not message.startswith("attribute") or named is None:
        return message
    near = get_close_matches(named.group(1), known, n=1)
    return f"{message}; did you mean `{near[0]}`?" if near else message


def _problem(policy: PolicyText, offset: int, policy_id: str, rule: str, message: str) -> PolicyProblem:
    line, column = policy.line_and_column(offset)
    return PolicyProblem(policy.document, line, column, policy_id, rule, message)


def _parse(text: str) -> str | None:
    try:
        cedarpy.PolicySet.from_str(text)
    except ValueError as error:
        return str(error)
    return None


def _error_offset(policy: PolicyText, message: str) -> int:
    """Return the offset of the first token that fails: every shorter prefix only fails with "end of input"."""
    tokens = policy.tokens
    if message == _END_OF_INPUT:
        return tokens[-1].end
    if message.startswith("integer"):
        # The parser notices it only at the next token.
        return max(tokens, key=lambda token: len(token.text) if token.kind == "number" else 0).start
    tried = _tried_tokens(len(tokens))
    failing = next((index for index in tried if _prefix_fails(policy, tokens[index])), len(tokens) - 1)
    if failing < len(tokens) - 1:
        return tokens[failing].start
    # The policy parses to its end and is refused as a whole: find what the message names.
    named = _named_token(policy, message) or _string_with(tokens, message)
    return (named or tokens[0]).start


def _tried_tokens(count: int) -> Iterable[int]:
    """Return the token indices to try, in order from the start: after its first error the parser recovers, so bisection
    would be wrong. Long policies are sampled."""
    return range(count) if count <= _MAX_TRIED_TOKENS else range(0, count, count // _MAX_TRIED_TOKENS + 1)


def _prefix_fails(policy: PolicyText, token: Token) -> bool:
    return _parse(policy.source[policy.tokens[0].start : token.end]) not in (_END_OF_INPUT, None)


def _named_token(policy: PolicyText, message: str) -> Token | None:
    """Return the token that a message names."""
    named = _QUOTED.search(message) or _NAMED.search(message)
    if named is None:
        return None
    wanted = [token.text for token in tokenize(named.group(1))]
    texts = [token.text for token in policy.tokens]
    starts = range(len(texts) - len(wanted) + 1)
    # The second of two duplicates is the wrong one.
    for index in reversed(starts) if message.startswith("duplicate") else starts:
        if texts[index : index + len(wanted)] == wanted and _reads_attribute(texts, index, message):
            return policy.tokens[index]
    return next((token for token in policy.tokens if token.text == f'"{named.group(1)}"'), None)


def _string_with(tokens: Sequence[Token], message: str) -> Token | None:
    """Return the string that contains the escape which a message quotes."""
    quoted = _QUOTED.search(message)
    strings = (token for token in tokens if token.kind == "string")
    return next((token for token in strings if quoted and quoted.group(1) in token.text), None)


def _reads_attribute(texts: Sequence[str], index: int, message: str) -> bool:
    return not message.startswith("attribute") or (index > 0 and texts[index - 1] in (".", "has"))


def _smallest_operand(policy: PolicyText, message: str, validate: Validate) -> Token | None:
    """Return the first token of the smallest operand for which the validator reports the same message."""
    first: Token | None = None
    for body in _bodies(policy.tokens):
        operands: list[Sequence[Token]] = [body]
        while operands:
            operand = next((one for one in operands if _reports(policy, one, message, validate)), None)
            if operand is None:
                break
            first, operands = operand[0], _split_operands(operand)
    return first


def _reports(policy: PolicyText, operand: Sequence[Token], message: str, validate: Validate) -> bool:
    text = f"{_PREFIX}{policy.source[operand[0].start : operand[-1].end]} }};"
    return any(_ENTITY_TYPE.sub(" does not exist", _simplify(reported)) == message for reported in validate(text))


def _simplify(message: str) -> str:
    """Remove policy numbers and internal type names from a message."""
    return _INTERNAL.sub("Bool", _FOR_POLICY.sub("", message))


def _bodies(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield the tokens between the braces after `when` and `unless`."""
    depth, begin = 0, 0
    for index, token in enumerate(tokens):
        if token.text == "{":
            depth += 1
            if depth == 1:
                begin = index + 1
        elif token.text == "}":
            depth -= 1
            if depth == 0 and index > begin:
                yield tokens[begin:index]


def _split_operands(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """Split an expression at its outermost `&&` and `||`; remove enclosing brackets or a negation."""
    if tokens[0].text == "(" and _closing_index(tokens) == len(tokens) - 1:
        return [tokens[1:-1]] if len(tokens) > 2 else []
    if tokens[0].text == "!":
        return [tokens[1:]] if len(tokens) > 1 else []
    operands: list[Sequence[Token]] = []
    depth = begin = 0
    for index, token in enumerate(tokens):
        depth += (token.text in "([{") - (token.text in ")]}")
        if depth == 0 and token.text in _CONNECTIVES:
            operands.append(tokens[begin:index])
            begin = index + 1
    operands.append(tokens[begin:])
    return [operand for operand in operands if operand] if begin else []


def _closing_index(tokens: Sequence[Token]) -> int:
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token.text in "([{") - (token.text in ")]}")
        if depth == 0:
            return index
    return len(tokens)
