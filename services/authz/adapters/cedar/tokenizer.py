"""The text of policy documents: where each policy begins and ends, and where each token is.

The Cedar parser says what is wrong but not where, and it ends the process when a policy is nested too deeply. So documents are
taken apart here first, into policies that are small enough to be parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# One token after another; whatever is none of these is a token of its own, which the parser will refuse.
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
# What makes an expression deeper. Bounding their sum bounds the depth.
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
    """A piece of text that has meaning, and where it is in its document."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class PolicyText:
    """One policy as it is written: from its first annotation to its semicolon, or to the end of the document without one."""

    document: str
    source: str
    """The whole document."""
    tokens: tuple[Token, ...]
    line: int
    """The line that it begins on."""

    @property
    def text(self) -> str:
        return self.source[self.tokens[0].start : self.tokens[-1].end]

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset into the document, both from 1."""
        return place_of(self.source, offset)

    def excess(self) -> tuple[str, int] | None:
        """Return why this must not be parsed, and where that shows; None if it may be."""
        if len(self.tokens) > MAX_POLICY_TOKENS:
            return f"the policy has more than {MAX_POLICY_TOKENS} words and marks", self.tokens[0].start
        depth = operators = 0
        for token in self.tokens:
            depth += (token.text in _OPENING) - (token.text in _CLOSING)
            operators += token.text in _DEEPENING
            if depth > MAX_NESTING:
                return f"brackets are nested more than {MAX_NESTING} deep", token.start
            if operators > MAX_OPERATORS:
                return f"the policy has more than {MAX_OPERATORS} operators and brackets", token.start
        return None


def policies_in(document: str, source: str) -> list[PolicyText]:
    """Take a document apart. Whatever stands behind the last semicolon counts as a policy, unless it is blank."""
    found: list[PolicyText] = []
    line, counted = 1, 0
    for tokens in _sentences(source):
        line, counted = line + source.count("\n", counted, tokens[0].start), tokens[0].start
        found.append(PolicyText(document, source, tokens, line))
    return found


def _sentences(source: str) -> Iterator[tuple[Token, ...]]:
    tokens: list[Token] = []
    for token in tokens_of(source):
        tokens.append(token)
        if token.text == _END:
            yield tuple(tokens)
            tokens = []
    if tokens:
        yield tuple(tokens)


def tokens_of(source: str) -> Iterator[Token]:
    """Return the tokens of a text, without blanks and comments."""
    for match in _TOKEN.finditer(source):
        if match.lastgroup != "blank":
            yield Token(match.lastgroup or "", match.group(), match.start())


def place_of(source: str, offset: int) -> tuple[int, int]:
    """Return line and column of an offset, both from 1."""
    return source.count("\n", 0, offset) + 1, offset - source.rfind("\n", 0, offset)


def unfinished_string(tokens: Sequence[Token]) -> Token | None:
    """Return the first string that does not end on its line, which is where a missing quote mark shows."""
    return next((t for t in tokens if t.kind == "open" or (t.kind == "string" and "\n" in t.text)), None)
