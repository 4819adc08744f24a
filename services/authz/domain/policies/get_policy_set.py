"""GetPolicySet: returns one policy set with its documents."""

from __future__ import annotations

from dataclasses import dataclass

from services.authz.domain.policies.errors import set_not_found
from services.authz.domain.policies.model import StoredPolicySet
from services.authz.domain.policies.ports import PolicySets


@dataclass(frozen=True)
class GetPolicySet:
    """Reads a policy set."""

    sets: PolicySets

    async def execute(self, number: int | None) -> StoredPolicySet:
        """Return a set; the active one if no number is given. Raises NOT_FOUND."""
        stored = await self.sets.active() if number is None else await self.sets.find(number)
        if stored is None:
            raise set_not_found(f"policySets/{'active' if number is None else number}")
        return stored
