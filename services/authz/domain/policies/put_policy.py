"""PutPolicy: keeps a new set, if nothing is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.runtime.clock import Clock
from services.authz.domain.policies.changed_documents import changed_documents
from services.authz.domain.policies.errors import policies_invalid
from services.authz.domain.policies.model import Change, NewSet, StoredSet
from services.authz.domain.policies.ports import Library, PolicySets


@dataclass(frozen=True)
class PutPolicy:
    """Puts documents on top of a set. Nobody is asked by the new set yet."""

    sets: PolicySets
    library: Library
    clock: Clock

    async def __call__(self, change: Change, comment: str, by: str) -> StoredSet:
        """Return the set. Raises POLICY_INVALID with everything that is wrong, and NOT_FOUND without such a base."""
        documents = await changed_documents(change, self.sets)
        found = await self.library.examine(documents)
        if found.problems:
            raise policies_invalid(found.problems)
        new = NewSet(found.version, documents, found.policy_count, comment, by, self.clock.now())
        return await self.sets.put(new)
