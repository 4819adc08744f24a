"""Estimates the cost of a regular expression before it is compiled."""

from __future__ import annotations

import re

# The weight with counted repetitions expanded: `(a{100}){100}` weighs ten thousand. Matching takes about this many
# steps per character; ordinary patterns weigh less than a hundred.
MAX_WEIGHT = 2_000
_REPEATED = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
_BACKTRACKING = ("(?=", "(?!", "(?<=", "(?<!", "(?>")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]", re.DOTALL)
# Unicode classes are automata of their own.
_UNICODE, _WORD = 20, 4


def weight(pattern: str) -> int | None:
    """Return the size of the automaton of a pattern; None for lookaround and backreferences."""
    return _PatternWeight(pattern).total()


class _PatternWeight:
    """One pass over a pattern. The pattern need not be valid; compilation checks that."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._sums = [0]
        self._last = 0

    def total(self) -> int | None:
        at, pattern = 0, self._pattern
        while at < len(pattern):
            if pattern.startswith(_BACKTRACKING, at) or re.match(r"\\[1-9]|\\k", pattern[at : at + 2]):
                return None
            at = self._step(at)
            if self._sums[-1] > MAX_WEIGHT:
                return self._sums[-1]
        return sum(self._sums)

    def _step(self, at: int) -> int:
        character = self._pattern[at]
        if character == "\\":
            return self._escape(at)
        if character == "[":
            character_class = _CLASS.match(self._pattern, at)
            # A class that is not closed is no pattern; looking for its end again and again would be quadratic.
            length = (character_class.end() if character_class else len(self._pattern)) - at
            return self._take(at, length, 1 + length // 8)
        if character == "(":
            self._sums.append(0)
            return at + (2 if self._pattern.startswith("(?", at) else 1)
        if character == ")":
            self._last = self._sums.pop() if len(self._sums) > 1 else 0
            self._sums[-1] += self._last
            return at + 1
        is_repeated = _REPEATED.match(self._pattern, at) if character == "{" else None
        if is_repeated:
            times = max(int(is_repeated.group(1)), int(is_repeated.group(2) or 0), 1)
            self._sums[-1] += self._last * (times - 1)
            return is_repeated.end()
        return at + 1 if character in "*+?|^$" else self._take(at, 1, 1)

    def _escape(self, at: int) -> int:
        kind = self._pattern[at + 1 : at + 2]
        if kind in ("p", "P"):
            end = self._pattern.find("}", at)
            return self._take(at, (end - at + 1) if end > 0 else 2, _UNICODE)
        return self._take(at, 2, _WORD if kind in tuple("wWsSdD") else 1)

    def _take(self, at: int, length: int, atom: int) -> int:
        self._last = atom
        self._sums[-1] += atom
        return at + length
