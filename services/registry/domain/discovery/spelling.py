"""Corrects misspelled words of a query before it is embedded: the model reads an unknown word as pieces of others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from string import ascii_lowercase

# Shorter words have too many neighbours.
MIN_LENGTH = 5
# Each costs some hundred look-ups.
MAX_CORRECTIONS = 12
_WORD = re.compile(r"[A-Za-z]+")


class Spelling:
    """Replaces words that are unknown by the most common word one edit away."""

    def __init__(self, ranks: Mapping[str, int], is_known: Callable[[str], bool]) -> None:
        """`ranks` orders words by how common they are, 0 first. `is_known` returns whether a tool has a word, such as
        the name of a product."""
        self._ranks, self._is_known = ranks, is_known

    def correct(self, text: str) -> str:
        """Return the text with misspelled words corrected."""
        left = MAX_CORRECTIONS

        def replaced(found: re.Match[str]) -> str:
            nonlocal left
            word = found[0].lower()
            if left == 0 or len(word) < MIN_LENGTH or word in self._ranks or self._is_known(word):
                return found[0]
            left -= 1
            common = [other for other in _one_edit_away(word) if other in self._ranks]
            return min(common, key=self._ranks.__getitem__, default=found[0])

        return _WORD.sub(replaced, text)


def _one_edit_away(word: str) -> Iterator[str]:
    """Yield every word with one letter less, more or different, or two letters swapped."""
    for at in range(len(word) + 1):
        before, after = word[:at], word[at:]
        if after:
            yield before + after[1:]
        if len(after) > 1:
            yield before + after[1] + after[0] + after[2:]
        for letter in ascii_lowercase:
            yield before + letter + after
            if after:
                yield before + letter + after[1:]
