"""ValidatePolicy: validates policy documents."""

from __future__ import annotations

from dataclasses import dataclass

from services.authz.domain.policies.changed_documents import changed_documents
from services.authz.domain.policies.model import PolicyProblem, PolicySetChange
from services.authz.domain.policies.ports import PolicyLibrary, PolicySets


@dataclass(frozen=True)
class ValidatePolicy:
    """Validates a changed policy set without storing it."""

    sets: PolicySets
    library: PolicyLibrary

    async def execute(self, change: PolicySetChange) -> tuple[PolicyProblem, ...]:
        """Return all problems; none if the documents can be stored."""
        result = await self.library.validate(await changed_documents(change, self.sets))
        return result.problems
