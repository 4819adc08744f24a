"""Splits policy documents into policies and tokens with their offsets.

Cedar's parser reports errors without a location, and a policy that is nested too deeply crashes the process. Documents
are therefore split here first, and policies that are too large are refused before they are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Any other character is a token of its own, which the parser will refuse.
_TOKEN = re.compile(
    r"""
      (?P<blank>\s+|//[^\n]*)
    | (?P<string>"(?:[^"\\]|\\.)*+")
    | (?P<open>"(?:[^"\\\n]|\\.)*+)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>[0-9]+)
    | (?P<mark>::|==|!=|<=|>=|&&|\|\||[@?,;.:!<>+*/%(){}\[\]-])
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_END = ";"
# Tokens that make an expression deeper. A bound on their number bounds the depth.
_DEEPENING = frozenset(
    {"(", "[", "{", ".", "!", "-", "+", "*", "&&", "||", "if", "has", "like", "in", "is", "==", "!="}
)
_DEEPENING |= frozenset({"<", "<=", ">", ">="})
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")

MAX_OPERATORS = 400
MAX_NESTING = 40
MAX_POLICY_TOKENS = 10_000


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its offset in the document."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class PolicyText:
    """The source of one policy: from its first annotation to its semicolon or the end of the document."""

    document: str
    source: str
    """The whole document."""
    tokens: tuple[Token, ...]
    line: int
    """The first line of the policy."""

    @property
    def text(self) -> str:
        return self.source[self.tokens[0].start : self.tokens[-1].end]

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset in the document, both from 1."""
        return line_and_column(self.source, offset)

    def size_problem(self) -> tuple[str, int] | None:
        """Return why the policy is too large to be parsed, and the offset; None if it is not."""
        if len(self.tokens) > MAX_POLICY_TOKENS:
            return f"the policy has more than {MAX_POLICY_TOKENS} tokens", self.tokens[0].start
        depth = operators = 0
        for token in self.tokens:
            depth += (token.text in _OPENING) - (token.text in _CLOSING)
            operators += token.text in _DEEPENING
            if depth > MAX_NESTING:
                return f"brackets are nested more than {MAX_NESTING} deep", token.start
            if operators > MAX_OPERATORS:
                return f"the policy has more than {MAX_OPERATORS} operators and brackets", token.start
        return None


def split_policies(document: str, source: str) -> list[PolicyText]:
    """Split a document into policies. Text after the last semicolon counts as a policy, unless it is blank."""
    policies: list[PolicyText] = []
    line, counted = 1, 0
    for tokens in _split_tokens(source):
        line, counted = line + source.count("\n", counted, tokens[0].start), tokens[0].start
        policies.append(PolicyText(document, source, tokens, line))
    return policies


def _split_tokens(source: str) -> Iterator[tuple[Token, ...]]:
    tokens: list[Token] = []
    for token in tokenize(source):
        tokens.append(token)
        if token.text == _END:
            yield tuple(tokens)
            tokens = []
    if tokens:
        yield tuple(tokens)


def tokenize(source: str) -> Iterator[Token]:
    """Yield the tokens of a text, without blanks and comments."""
    for match in _TOKEN.finditer(source):
        if match.lastgroup != "blank":
            yield Token(match.lastgroup or "", match.group(), match.start())


def line_and_column(source: str, offset: int) -> tuple[int, int]:
    """Return line and column of an offset, both from 1."""
    return source.count("\n", 0, offset) + 1, offset - source.rfind("\n", 0, offset)


def find_unterminated_string(tokens: Sequence[Token]) -> Token | None:
    """Return the first string that does not end on its line: a quotation mark is probably missing there."""
    return next((t for t in tokens if t.kind == "open" or (t.kind == "string" and "\n" in t.text)), None)
