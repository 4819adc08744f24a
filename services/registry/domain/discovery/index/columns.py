"""The columns of the index: one array per attribute, one row per tool."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

WIDTH = 384
_FIRST_ROWS = 64

Mask = npt.NDArray[np.bool_]


class InternTable:
    """Maps equal values to the same small integer, so that a filter tests each value once, not each row."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self.values: list[Any] = []

    def number(self, key: Hashable, value: Any = None) -> int:
        """Return the number of a key. `values` stores `value` for it, or the key itself."""
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(key if value is None else value)
        return self._numbers[key]

    def mask_of(self, wanted: Iterable[int]) -> Mask:
        """Return a mask over the numbers."""
        mask = np.zeros(len(self.values), dtype=np.bool_)
        mask[list(wanted)] = True
        return mask


class Columns:
    """Arrays that grow together. Rows of removed tools stay, marked as not alive, until the index is rebuilt."""

    def __init__(self) -> None:
        self.size = 0
        self._grow(_FIRST_ROWS)

    def _grow(self, rows: int) -> None:
        def grown(name: str, dtype: Any, *shape: int) -> Any:
            column = np.zeros((rows, *shape), dtype=dtype)
            if self.size:
                column[: self.size] = getattr(self, name)[: self.size]
            return column

        self.alive: Mask = grown("alive", np.bool_)
        self.trust: npt.NDArray[np.float32] = grown("trust", np.float32)
        self.latency: npt.NDArray[np.float32] = grown("latency", np.float32)
        self.cost: npt.NDArray[np.float32] = grown("cost", np.float32)
        self.length: npt.NDArray[np.float32] = grown("length", np.float32)
        self.mutation: npt.NDArray[np.uint8] = grown("mutation", np.uint8)
        self.namespace: npt.NDArray[np.int32] = grown("namespace", np.int32)
        self.scopes: npt.NDArray[np.int32] = grown("scopes", np.int32)
        self.versions: npt.NDArray[np.int32] = grown("versions", np.int32)
        self.category: npt.NDArray[np.int32] = grown("category", np.int32)
        self.needs: npt.NDArray[np.int32] = grown("needs", np.int32)
        self.embedded: Mask = grown("embedded", np.bool_)
        self.vectors: npt.NDArray[np.float32] = grown("vectors", np.float32, WIDTH)
        self.rows = rows

    def add(self) -> int:
        """Return a new row, alive and otherwise empty."""
        if self.size == self.rows:
            self._grow(self.rows * 2)
        row, self.size = self.size, self.size + 1
        self.alive[row] = True
        return row

    @property
    def held_bytes(self) -> int:
        """The memory that the arrays hold."""
        return sum(column.nbytes for column in vars(self).values() if isinstance(column, np.ndarray))
