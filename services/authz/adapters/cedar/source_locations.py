"""Where something is wrong in a policy: the parser's and the validator's words brought back to a line and a column."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches

import cedarpy

from services.authz.adapters.cedar.tokenizer import PolicyText, Token, tokens_of, unfinished_string
from services.authz.domain.policies.model import Problem

_ENDED = "unexpected end of input"
_FOR_POLICY = re.compile(r"^for policy `[^`]*`, ")
_INTERNAL = re.compile(r"__cedar::internal::(?:True|False)")
_OF_TYPE = re.compile(r" (?:on entity type `[^`]*`|in context for Action::\"[^\"]*\") not found$")
_QUOTED = re.compile(r"`([^`]+)`")
_NAMED = re.compile(r"(?:annotation|condition|effect): @?(\S+)$")
_CONSEQUENCE = "unable to find an applicable action"
_PREFIX = "permit (principal, action, resource) when { "
_MANY_TOKENS = 500
_BETWEEN = frozenset({"&&", "||"})

Validate = Callable[[str], Sequence[str]]
"""Returns what the validator says about a text, in its own words."""


def syntax_problem(policy: PolicyText) -> Problem | None:
    """Return what keeps a policy from being parsed, and where; None if it can be parsed."""
    excess = policy.excess()
    if excess is not None:
        return _problem(policy, excess[1], "", "size", excess[0])
    message = _parse(policy.text)
    if message is None:
        return None
    if (string := unfinished_string(policy.tokens)) is not None:
        return _problem(policy, string.start, "", "syntax", "the text that begins here does not end on its line")
    return _problem(policy, _culprit(policy, message), "", "syntax", message)


def type_problems(policy: PolicyText, ids: str, messages: Iterable[str], validate: Validate) -> Iterator[Problem]:
    """Return what the validator says about a policy, each thing once and at its place."""
    said = [_plain(message) for message in messages]
    causes = [message for message in said if not message.startswith(_CONSEQUENCE)] or said
    # The same attribute is missing from each kind of principal and for each action.
    for message in dict.fromkeys(_OF_TYPE.sub(" does not exist", each) for each in causes):
        token = _named_token(policy, message) or _operand(policy, message, validate)
        start = token.start if token else policy.tokens[0].start
        yield _problem(policy, start, ids, "type", message)


def with_suggestion(message: str, known: Iterable[str]) -> str:
    """Add the name that was probably meant."""
    named = _QUOTED.search(message)
    if not message.startswith("attribute") or named is None:
        return message
    near = get_close_matches(named.group(1), known, n=1)
    return f"{message}; did you mean `{near[0]}`?" if near else message


def _problem(policy: PolicyText, offset: int, ids: str, rule: str, message: str) -> Problem:
    line, column = policy.place(offset)
    return Problem(policy.document, line, column, ids, rule, message)


def _parse(text: str) -> str | None:
    try:
        cedarpy.PolicySet.from_str(text)
    except ValueError as error:
        return str(error)
    return None


def _culprit(policy: PolicyText, message: str) -> int:
    """Return the place of the first token that the parser stumbles over: up to there, it only misses the rest."""
    tokens = policy.tokens
    if message == _ENDED:
        return tokens[-1].end
    if message.startswith("integer"):
        # Noticed only when the token behind it is read.
        return max(tokens, key=lambda token: len(token.text) if token.kind == "number" else 0).start
    place = next((index for index in _tried(len(tokens)) if _stumbles(policy, tokens[index])), len(tokens) - 1)
    if place < len(tokens) - 1:
        return tokens[place].start
    # It was understood to its end and refused as a whole: look for what the words name.
    named = _named_token(policy, message) or _string_with(tokens, message)
    return (named or tokens[0]).start


def _tried(count: int) -> Iterable[int]:
    """Where to look, in order. From the beginning, because behind its first stumble the parser finds its feet again; what is
    very long is not gone through word by word."""
    return range(count) if count <= _MANY_TOKENS else range(0, count, count // _MANY_TOKENS + 1)


def _stumbles(policy: PolicyText, token: Token) -> bool:
    return _parse(policy.source[policy.tokens[0].start : token.end]) not in (_ENDED, None)


def _named_token(policy: PolicyText, message: str) -> Token | None:
    """Return the token at which a policy has what a message names."""
    named = _QUOTED.search(message) or _NAMED.search(message)
    if named is None:
        return None
    wanted = [token.text for token in tokens_of(named.group(1))]
    texts = [token.text for token in policy.tokens]
    places = range(len(texts) - len(wanted) + 1)
    # What is said twice is wrong the second time.
    for index in reversed(places) if message.startswith("duplicate") else places:
        if texts[index : index + len(wanted)] == wanted and _reads_attribute(texts, index, message):
            return policy.tokens[index]
    return next((token for token in policy.tokens if token.text == f'"{named.group(1)}"'), None)


def _string_with(tokens: Sequence[Token], message: str) -> Token | None:
    """Return the string that has the escape which a message is about."""
    quoted = _QUOTED.search(message)
    strings = (token for token in tokens if token.kind == "string")
    return next((token for token in strings if quoted and quoted.group(1) in token.text), None)


def _reads_attribute(texts: Sequence[str], index: int, message: str) -> bool:
    return not message.startswith("attribute") or (index > 0 and texts[index - 1] in (".", "has"))


def _operand(policy: PolicyText, message: str, validate: Validate) -> Token | None:
    """Return the beginning of the smallest part of the conditions that the validator says the same of."""
    found: Token | None = None
    for body in _bodies(policy.tokens):
        parts: list[Sequence[Token]] = [body]
        while parts:
            part = next((each for each in parts if _says(policy, each, message, validate)), None)
            if part is None:
                break
            found, parts = part[0], _divided(part)
    return found


def _says(policy: PolicyText, part: Sequence[Token], message: str, validate: Validate) -> bool:
    text = f"{_PREFIX}{policy.source[part[0].start : part[-1].end]} }};"
    return any(_OF_TYPE.sub(" does not exist", _plain(said)) == message for said in validate(text))


def _plain(message: str) -> str:
    """A message without what means nothing to who wrote the policy."""
    return _INTERNAL.sub("Bool", _FOR_POLICY.sub("", message))


def _bodies(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """The conditions between the braces behind `when` and `unless`."""
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


def _divided(part: Sequence[Token]) -> list[Sequence[Token]]:
    """Take a condition apart at its outermost operators; one in brackets loses them."""
    if part[0].text == "(" and _closing(part) == len(part) - 1:
        return [part[1:-1]] if len(part) > 2 else []
    if part[0].text == "!":
        return [part[1:]] if len(part) > 1 else []
    pieces: list[Sequence[Token]] = []
    depth = begin = 0
    for index, token in enumerate(part):
        depth += (token.text in "([{") - (token.text in ")]}")
        if depth == 0 and token.text in _BETWEEN:
            pieces.append(part[begin:index])
            begin = index + 1
    pieces.append(part[begin:])
    return [piece for piece in pieces if piece] if begin else []


def _closing(part: Sequence[Token]) -> int:
    depth = 0
    for index, token in enumerate(part):
        depth += (token.text in "([{") - (token.text in ")]}")
        if depth == 0:
            return index
    return len(part)
