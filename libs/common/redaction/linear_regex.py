"""Compiles tenants' patterns so that no text can make them slow.

The language is a subset of the usual one: literals, `.`, classes, `\\d \\w \\s \\b`, groups, `|`, and the repetitions
`?`, `{n}` and `{m,n}`. `*`, `+`, back-references and look-around are refused. Every repetition is possessive and every
group atomic, so an attempt never backtracks, and its length is bounded when the pattern is compiled. A search over n
characters takes at most n times that bound. The price: `[A-Z]{1,5}X` never matches, because the class has taken the X.
That is why a rule has an example.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_PATTERN, MAX_REACH, MAX_WORK, MIN_MATCH = 200, 256, 2048, 3
_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": " \\t\\r\\n"}
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _-:;,=@#/!%&'\"<>~`")


class PatternError(ValueError):
    """The pattern is outside of the language or could be slow; the message says where and why."""


class Part(NamedTuple):
    """A part of a pattern: its text for `re`, the least and most it matches, and the highest cost of an attempt."""

    written: str
    least: int
    most: int
    work: int


def compile_linear(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """Compile a pattern whose search time is linear in the text. Raises PatternError."""
    if not 0 < len(pattern) <= MAX_PATTERN:
        raise PatternError(f"a pattern has 1 to {MAX_PATTERN} characters")
    reader = _Reader(pattern)
    found = reader.alternatives()
    if reader.place != len(pattern):
        raise PatternError(f"unexpected {pattern[reader.place]!r} at {reader.place}")
    if found.least < MIN_MATCH:
        raise PatternError(f"a match must have at least {MIN_MATCH} characters")
    if found.most > MAX_REACH or found.work > MAX_WORK:
        raise PatternError(f"a match may have at most {MAX_REACH} characters, and an attempt {MAX_WORK} steps")
    return re.compile(found.written, re.ASCII | (re.IGNORECASE if ignore_case else re.NOFLAG))


class _Reader:
    """Reads a pattern from left to right, once."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.place, self._depth = pattern, 0, 0

    def alternatives(self) -> Part:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        return Part(
            "(?>" + "|".join(branch.written for branch in branches) + ")",
            min(branch.least for branch in branches),
            max(branch.most for branch in branches),
            sum(branch.work for branch in branches),
        )

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while self.place < len(self.pattern) and self.pattern[self.place] not in "|)":
            parts.append(self._repeated(self._atom()))
        return Part(
            "".join(part.written for part in parts),
            sum(part.least for part in parts),
            sum(part.most for part in parts),
            1 + sum(part.work for part in parts),
        )

    def _atom(self) -> Part:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return Part(self._class(), 1, 1, 1)
        if character == ".":
            return Part("[^\\n]", 1, 1, 1)
        if character == "\\":
            return self._escaped()
        if character in _PLAIN or ord(character) > 127:
            return Part(re.escape(character), 1, 1, 1)
        raise PatternError(f"{character!r} at {self.place - 1} is not allowed here; write it as \\{character}")

    def _group(self) -> Part:
        self._depth += 1
        if self._depth > 8:
            raise PatternError("groups are nested too deeply")
        inner = self.alternatives()
        if not self._take(")"):
            raise PatternError("a group is not closed")
        self._depth -= 1
        return inner._replace(written=f"(?>{inner.written})")

    def _escaped(self) -> Part:
        character = self._next()
        if character == "b":
            return Part("\\b", 0, 0, 1)
        if character in _CLASSES:
            return Part(f"[{_CLASSES[character]}]", 1, 1, 1)
        if character.isalnum():
            raise PatternError(f"\\{character} is not allowed")
        return Part(re.escape(character), 1, 1, 1)

    def _class(self) -> str:
        written = "[^" if self._take("^") else "["
        while not self._take("]"):
            character = self._next()
            if character == "\\":
                escaped = self._next()
                written += _CLASSES.get(escaped) or (re.escape(escaped) if not escaped.isalnum() else "")
                if escaped.isalnum() and escaped not in _CLASSES:
                    raise PatternError(f"\\{escaped} is not allowed")
            elif character == "-" and not written.endswith("[") and self.pattern[self.place : self.place + 1] != "]":
                written += "-"
            else:
                written += re.escape(character)
        return written + "]"

    def _repeated(self, atom: Part) -> Part:
        if self._take("?"):
            low, high = 0, 1
        elif self._take("{"):
            low, high = self._bounds()
        else:
            return atom
        if not atom.most:
            raise PatternError("a boundary cannot be repeated")
        written = f"(?:{atom.written}){{{low},{high}}}+"
        return Part(written, low * atom.least, high * atom.most, (high + 1) * atom.work)

    def _bounds(self) -> tuple[int, int]:
        found = re.compile(r"([0-9]{1,3})(?:,([0-9]{1,3}))?\}").match(self.pattern, self.place)
        if found is None:
            raise PatternError(f"a repetition needs its bounds, {{n}} or {{m,n}}, at {self.place}")
        self.place = found.end()
        low, high = int(found.group(1)), int(found.group(2) or found.group(1))
        if not 0 <= low <= high or not high:
            raise PatternError("the bounds of a repetition are out of order")
        return low, high

    def _take(self, character: str) -> bool:
        if self.pattern[self.place : self.place + 1] != character:
            return False
        self.place += 1
        return True

    def _next(self) -> str:
        if self.place >= len(self.pattern):
            raise PatternError("the pattern ends too early")
        self.place += 1
        return self.pattern[self.place - 1]
