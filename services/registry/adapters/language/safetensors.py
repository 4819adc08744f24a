"""Reads the header of a safetensors file: eight bytes of length, a JSON header with offsets, then the tensors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TensorLocation:
    """The name, shape and byte range of a tensor."""

    name: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def read(self, file: Path) -> npt.NDArray[np.float32]:
        """Return the tensor as a memory map."""
        return np.memmap(file, dtype="<f4", mode="r", offset=self.begin, shape=self.shape)


def tensor_locations(file: Path) -> list[TensorLocation]:
    """Return the locations of all single-precision tensors."""
    with file.open("rb") as content:
        length = int.from_bytes(content.read(8), "little")
        header = json.loads(content.read(length))
    return [
        TensorLocation(name, tuple(tensor["shape"]), *(8 + length + offset for offset in tensor["data_offsets"]))
        for name, tensor in header.items()
        if tensor.get("dtype") == "F32"
    ]
