"""Limits of a value, for annotations: `Annotated[int, Limits(ge=1, le=9)]`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAMES = frozenset(
    {"ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern", "title", "description", "examples"}
)


class Limits:
    """What a type alone does not say of a value. `toolmesh pack build` writes it into the schema."""

    def __init__(self, **limits: Any) -> None:
        """Raises TypeError for a limit that no schema has."""
        if unknown := limits.keys() - _NAMES:
            raise TypeError(f"Limits() has no {sorted(unknown)[0]}")
        self.limits = limits
