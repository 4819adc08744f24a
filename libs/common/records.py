"""Dataclasses for the warm path, which are made many times per call and never changed.

The type checker treats them as frozen. At run time they are not: a frozen dataclass sets each field through a detour
that costs several times the assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as fact
else:
    from dataclasses import dataclass

    def fact(*, frozen, slots):
        """Make a dataclass that compares and hashes by its fields."""
        return dataclass(slots=slots, unsafe_hash=frozen)


__all__ = ["fact"]
