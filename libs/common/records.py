"""Facts: dataclasses of which one or more are made for every call, and which nobody changes.

That nobody does is the type checker's business. Python would see to it at run time by setting each field through a detour that costs
several times the assignment, with dozens of fields a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as fact
else:
    from dataclasses import dataclass

    def fact(*, frozen, slots):
        """Make a dataclass that is equal and hashed by its fields."""
        return dataclass(slots=slots, unsafe_hash=frozen)


__all__ = ["fact"]
