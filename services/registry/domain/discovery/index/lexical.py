"""BM25 over weighted fields, with array arithmetic."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

_SATURATION, _LENGTH_SHARE = 1.2, 0.5

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int32]


class Postings:
    """For each key, the rows that have it and its weight there. Rows are only added; the owner masks removed rows and
    rebuilds the postings when they are many."""

    def __init__(self) -> None:
        self._rows: dict[str, array[int]] = {}
        self._counts: dict[str, array[float]] = {}

    def add(self, row: int, counted: Mapping[str, float]) -> None:
        """Add a row with these keys."""
        for key, count in counted.items():
            if key not in self._rows:
                self._rows[key], self._counts[key] = array("i"), array("f")
            self._rows[key].append(row)
            self._counts[key].append(count)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def of(self, key: str) -> tuple[Rows, Floats]:
        """Return the rows of a key and its weight in each. Valid until the next `add`."""
        if key not in self._rows:
            return np.empty(0, np.int32), np.empty(0, np.float32)
        # Copies, because an array with an exported buffer cannot grow.
        rows = np.array(self._rows[key], dtype=np.int32)
        return rows, np.array(self._counts[key], dtype=np.float32)

    def having(self, key: str, size: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows that have a key."""
        mask = np.zeros(size, dtype=np.bool_)
        mask[self.of(key)[0]] = True
        return mask


def bm25(
    postings: Postings, wanted: Sequence[str], lengths: Floats, alive: npt.NDArray[np.bool_]
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return the BM25 score of each row, 0 to 1, and the rows that have all wanted words.

    A row that has every word many times approaches 1. A word that no row has still counts towards the maximum, so that
    matching two words of two is better than two of five.
    """
    scores = np.zeros(len(lengths), dtype=np.float32)
    matched = np.zeros(len(lengths), dtype=np.int32)
    total = int(alive.sum())
    average = float(lengths[alive].mean()) if total else 1.0
    possible = 0.0
    for word in wanted:
        rows, counts = postings.of(word)
        rarity = math.log(1 + (total - min(len(rows), total) + 0.5) / (len(rows) + 0.5)) if total else 1.0
        possible += rarity * (_SATURATION + 1)
        if not len(rows):
            continue
        norm = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * lengths[rows] / max(average, 1.0))
        scores[rows] += np.float32(rarity * (_SATURATION + 1)) * counts / (counts + norm)
        matched[rows] += 1
    return scores / np.float32(possible or 1.0), (matched == len(wanted)) & bool(wanted)


def trigrams(text: str) -> Iterable[str]:
    """Return the character trigrams of a text, with its ends marked."""
    padded = f"  {text} "
    return {padded[at : at + 3] for at in range(len(padded) - 2)}
