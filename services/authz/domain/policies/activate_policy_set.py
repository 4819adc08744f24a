"""ActivatePolicySet: makes a policy set the active one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from libs.common.runtime.clock import Clock
from services.authz.domain.policies.model import StoredPolicySet
from services.authz.domain.policies.ports import PolicyLibrary, PolicySets


@dataclass(frozen=True)
class ActivatePolicySet:
    """Activates policy sets. When it returns, this replica uses the set; the others follow the feed."""

    sets: PolicySets
    library: PolicyLibrary
    clock: Clock
    announce: Callable[[], None]
    """Wakes every replica to read the feed."""

    async def execute(self, number: int, expected: int | None, by: str) -> StoredPolicySet:
        """Return the active set. Raises NOT_FOUND, FAILED_PRECONDITION when the active set is not the expected one, and
        POLICY_INVALID when the set no longer compiles."""
        stored = await self.sets.find(number)
        if stored is not None:
            # Compiled before the activation, so that the switch itself takes no time.
            await self.library.engine_for(stored.version)
        activated = await self.sets.activate(number, expected, by, self.clock.now())
        self.announce()
        await self.library.refresh()
        return activated
