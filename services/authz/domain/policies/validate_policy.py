"""ValidatePolicy: says what is wrong with documents."""

from __future__ import annotations

from dataclasses import dataclass

from services.authz.domain.policies.changed_documents import changed_documents
from services.authz.domain.policies.model import Change, Problem
from services.authz.domain.policies.ports import Library, PolicySets


@dataclass(frozen=True)
class ValidatePolicy:
    """Examines documents as if they were put. Keeps nothing."""

    sets: PolicySets
    library: Library

    async def __call__(self, change: Change) -> tuple[Problem, ...]:
        """Return everything that is wrong; nothing when the documents may be put."""
        found = await self.library.examine(await changed_documents(change, self.sets))
        return found.problems
