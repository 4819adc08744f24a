"""A problem of a pack, at its place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class PackProblem:
    """A problem of a pack, with its file and line."""

    path: Path
    line: int
    message: str

    @property
    def place(self) -> str:
        """The file and the line, as editors open them."""
        return f"{self.path}:{self.line}"

    def to_dict(self) -> dict[str, Any]:
        """Return the problem as JSON."""
        return {"file": str(self.path), "line": self.line, "message": self.message}
