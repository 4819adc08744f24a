"""RollbackPolicySet: makes the set active that was active before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from libs.common.runtime.clock import Clock
from services.authz.domain.policies.model import StoredSet
from services.authz.domain.policies.ports import Library, PolicySets


@dataclass(frozen=True)
class RollbackPolicySet:
    """Goes back one set each time, as far as the history reaches."""

    sets: PolicySets
    library: Library
    clock: Clock
    announce: Callable[[], None]
    """Tells every replica that the feed grew."""

    async def __call__(self, expected: int | None, by: str) -> StoredSet:
        """Return the active set. Raises FAILED_PRECONDITION when there was none before, or another one than expected is active;
        POLICY_INVALID when the one before cannot be used any more."""
        earlier = await self.sets.earlier()
        if earlier is not None:
            # Before anybody is told: a set that can be asked no more must not become the one that everybody asks.
            await self.library.of_version(earlier.version)
        activated = await self.sets.roll_back(expected, by, self.clock.now())
        self.announce()
        await self.library.refresh()
        return activated
