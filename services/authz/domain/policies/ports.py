"""What keeping, explaining and replaying policy sets needs from the outside."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Protocol

from services.authz.domain.model import Question
from services.authz.domain.policies.model import Documents, Examination, Finding, NewSet, Recorded, StoredSet
from services.authz.domain.ports import PolicyEngine


class ExplainingEngine(PolicyEngine, Protocol):
    """Policy that can say what each of its policies makes of a question."""

    def findings(self, question: Question) -> list[Finding]:
        """Say what each policy by itself makes of it, in the order of the documents. Takes a while: not for the event loop."""
        ...


class Library(Protocol):
    """Sets of policies, ready to be asked."""

    async def examine(self, documents: Documents) -> Examination:
        """Say what is wrong with documents, or how many policies they hold."""
        ...

    async def of_version(self, version: str) -> ExplainingEngine | None:
        """Return the engine of a set, also of one that was active once. Raises POLICY_INVALID for one that was put under another schema and
        cannot be used any more."""
        ...

    async def refresh(self) -> None:
        """Ask the set from now on that is active."""
        ...


class PolicySets(Protocol):
    """Sets as they were put, and which of them was active when."""

    async def put(self, new: NewSet) -> StoredSet:
        """Keep a set; the same content again is the set that is already there."""
        ...

    async def find(self, number: int) -> StoredSet | None:
        """Return a set with its documents."""
        ...

    async def active(self) -> StoredSet | None:
        """Return the active set with its documents."""
        ...

    async def page(self, before: int | None, size: int) -> list[StoredSet]:
        """Return sets without documents, newest first."""
        ...

    async def activate(self, number: int, expected: int | None, by: str, now: datetime) -> StoredSet:
        """Make a set active and tell every replica. Raises NOT_FOUND, and FAILED_PRECONDITION when another one than the
        expected is active."""
        ...

    async def earlier(self) -> StoredSet | None:
        """Return the set that was active before, with its documents."""
        ...

    async def roll_back(self, expected: int | None, by: str, now: datetime) -> StoredSet:
        """Make the set active that was active before. Raises FAILED_PRECONDITION."""
        ...


class DecisionRecords(Protocol):
    """The decisions that were kept."""

    async def find(self, decision_id: str) -> Recorded | None:
        """Return one."""
        ...

    async def count(self, most: int) -> int:
        """Return how many there are, up to `most`."""
        ...

    def last(self, most: int) -> AsyncIterator[list[Recorded]]:
        """Return the last ones, newest first, in pages."""
        ...
