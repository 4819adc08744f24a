"""The ports of policy sets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from services.authz.domain.model import DecisionRequest, LabelSource
from services.authz.domain.policies.model import (
    Documents,
    NewPolicySet,
    PolicyFinding,
    RecordedDecision,
    StoredPolicySet,
    ValidationResult,
)
from services.authz.domain.ports import PolicyEngine


class ExplainingEngine(PolicyEngine, Protocol):
    """A policy engine that can evaluate each of its policies separately."""

    def findings(self, request: DecisionRequest) -> list[PolicyFinding]:
        """Evaluate each policy by itself, in document order. Slow: do not run on the event loop."""
        ...


class PolicyLibrary(Protocol):
    """Compiled policy sets."""

    async def validate(self, documents: Documents) -> ValidationResult:
        """Validate documents."""
        ...

    async def engine_for(self, version: str) -> ExplainingEngine | None:
        """Return the engine of an active or former set. Raises POLICY_INVALID for a set that no longer compiles because
        the schema has changed."""
        ...

    async def trial(self, documents: Documents) -> ExplainingEngine:
        """Return an engine of documents that are not stored. Raises POLICY_INVALID with all problems."""
        ...

    async def refresh(self) -> None:
        """Switch to the active set."""
        ...


class PolicySets(Protocol):
    """The stored policy sets and the history of activations."""

    async def put(self, new: NewPolicySet) -> StoredPolicySet:
        """Store a set; for known content return the stored set."""
        ...

    async def find(self, number: int) -> StoredPolicySet | None:
        """Return a set with its documents."""
        ...

    async def active(self) -> StoredPolicySet | None:
        """Return the active set with its documents."""
        ...

    async def page(self, before: int | None, size: int) -> list[StoredPolicySet]:
        """Return sets without documents, newest first."""
        ...

    async def activate(self, number: int, expected: int | None, by: str, now: datetime) -> StoredPolicySet:
        """Activate a set and add that to the feed. Raises NOT_FOUND, and FAILED_PRECONDITION when the active set is not
        the expected one."""
        ...

    async def previous(self) -> StoredPolicySet | None:
        """Return the previously active set with its documents."""
        ...

    async def roll_back(self, expected: int | None, by: str, now: datetime) -> StoredPolicySet:
        """Activate the previously active set. Raises FAILED_PRECONDITION."""
        ...


class LabelHistory(Protocol):
    """How labels came into sessions, and left them."""

    async def sources(self, scopes: Collection[str]) -> Mapping[str, Sequence[LabelSource]]:
        """Return how labels came into each scope, removed ones included. Raises SERVICE_UNAVAILABLE."""
        ...


class DecisionRecords(Protocol):
    """The recorded decisions."""

    async def find(self, decision_id: str) -> RecordedDecision | None:
        """Return one decision."""
        ...

    async def count(self, limit: int) -> int:
        """Return the number of decisions, at most `limit`."""
        ...

    def last(self, limit: int) -> AsyncIterator[list[RecordedDecision]]:
        """Yield pages of the last decisions, newest first."""
        ...
