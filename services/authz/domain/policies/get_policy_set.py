"""GetPolicySet: returns one set with its documents."""

from __future__ import annotations

from dataclasses import dataclass

from services.authz.domain.policies.errors import set_not_found
from services.authz.domain.policies.model import StoredSet
from services.authz.domain.policies.ports import PolicySets


@dataclass(frozen=True)
class GetPolicySet:
    """Reads sets."""

    sets: PolicySets

    async def __call__(self, number: int | None) -> StoredSet:
        """Return a set; the active one without a number. Raises NOT_FOUND."""
        found = await self.sets.active() if number is None else await self.sets.find(number)
        if found is None:
            raise set_not_found(f"policySets/{'active' if number is None else number}")
        return found
