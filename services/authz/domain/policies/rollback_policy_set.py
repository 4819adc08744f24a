"""RollbackPolicySet: activates the previously active policy set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from libs.common.runtime.clock import Clock
from services.authz.domain.policies.model import StoredPolicySet
from services.authz.domain.policies.ports import PolicyLibrary, PolicySets


@dataclass(frozen=True)
class RollbackPolicySet:
    """Rolls back by one activation each time."""

    sets: PolicySets
    library: PolicyLibrary
    clock: Clock
    announce: Callable[[], None]
    """Wakes every replica to read the feed."""

    async def execute(self, expected: int | None, by: str) -> StoredPolicySet:
        """Return the active set. Raises FAILED_PRECONDITION when there is no previous set or the active set is not the
        expected one, and POLICY_INVALID when the previous set no longer compiles."""
        previous = await self.sets.previous()
        if previous is not None:
            # Compiled first: a set that no longer compiles must not become active.
            await self.library.engine_for(previous.version)
        activated = await self.sets.roll_back(expected, by, self.clock.now())
        self.announce()
        await self.library.refresh()
        return activated
