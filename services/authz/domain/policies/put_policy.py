"""PutPolicy: validates and stores a new policy set."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.runtime.clock import Clock
from services.authz.domain.policies.changed_documents import changed_documents
from services.authz.domain.policies.errors import policies_invalid
from services.authz.domain.policies.model import NewPolicySet, PolicySetChange, StoredPolicySet
from services.authz.domain.policies.ports import PolicyLibrary, PolicySets


@dataclass(frozen=True)
class PutPolicy:
    """Stores a changed policy set without activating it."""

    sets: PolicySets
    library: PolicyLibrary
    clock: Clock

    async def execute(self, change: PolicySetChange, comment: str, by: str) -> StoredPolicySet:
        """Return the stored set. Raises POLICY_INVALID with all problems, and NOT_FOUND for a missing base."""
        documents = await changed_documents(change, self.sets)
        result = await self.library.validate(documents)
        if result.problems:
            raise policies_invalid(result.problems)
        new = NewPolicySet(result.version, documents, result.policy_count, comment, by, self.clock.now())
        return await self.sets.put(new)
