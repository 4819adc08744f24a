"""ActivatePolicySet: makes a set the one that is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from libs.common.runtime.clock import Clock
from services.authz.domain.policies.model import StoredSet
from services.authz.domain.policies.ports import Library, PolicySets


@dataclass(frozen=True)
class ActivatePolicySet:
    """Activates sets. When it returns, this replica asks the set; the others follow the feed."""

    sets: PolicySets
    library: Library
    clock: Clock
    announce: Callable[[], None]
    """Tells every replica that the feed grew."""

    async def __call__(self, number: int, expected: int | None, by: str) -> StoredSet:
        """Return the active set. Raises NOT_FOUND, FAILED_PRECONDITION when another one than the expected is active, and POLICY_INVALID
        when the set cannot be used any more."""
        stored = await self.sets.find(number)
        if stored is not None:
            # Compiled before anybody is told, so that the swap itself takes no time.
            await self.library.of_version(stored.version)
        activated = await self.sets.activate(number, expected, by, self.clock.now())
        self.announce()
        await self.library.refresh()
        return activated
