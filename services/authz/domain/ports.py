"""The ports of the authorization domain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, Protocol

from libs.common.auth.identity import Identity
from services.authz.domain.decisions.limits import Limits
from services.authz.domain.model import (
    ContextField,
    Decision,
    DecisionRequest,
    ExternalToken,
    FoundLabels,
    Invalidation,
    LedgerEntry,
    ResolvedDid,
    Revocation,
    RevocationTarget,
    TokenRecord,
    Verdict,
)


class SigningKey(Protocol):
    """A private key that signs tokens."""

    @property
    def kid(self) -> str:
        """The RFC 7638 thumbprint of its public half."""
        ...

    async def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a token with exactly these claims. Does not block the event loop."""
        ...


class KeyRing(Protocol):
    """The current signing keys of this issuer."""

    async def active(self) -> SigningKey:
        """Return the key that signs new tokens. Raises SERVICE_UNAVAILABLE when all keys are revoked."""
        ...

    async def jwks(self) -> bytes:
        """Return all public keys as a JSON Web Key Set."""
        ...

    def cached_jwks(self) -> bytes | None:
        """Return the key set without waiting; None if the cached one is stale."""
        ...

    async def published(self) -> AbstractSet[str]:
        """Return the ids of all published keys."""
        ...


class Ledger(Protocol):
    """The record of issued tokens."""

    async def record(self, entry: LedgerEntry) -> None:
        """Store an entry durably. Raises SERVICE_UNAVAILABLE."""
        ...


class ExternalTokenVerifier(Protocol):
    """Verifies tokens of trusted external issuers."""

    async def verify(self, token: str) -> ExternalToken:
        """Return the mapped claims of a token. Raises a TOKEN_ reason for an invalid one, and SERVICE_UNAVAILABLE when
        the issuer's keys cannot be fetched."""
        ...


class DidResolver(Protocol):
    """Resolves decentralized identifiers."""

    async def resolve(self, did: str) -> ResolvedDid:
        """Return the resolved DID. Raises DID_NOT_FOUND, and SERVICE_UNAVAILABLE when the resolver does not respond."""
        ...


class TokenReader(Protocol):
    """Verifies tokens of this mesh."""

    async def verify(self, token: str) -> Identity:
        """Return the identity of a token. Raises a TOKEN_ reason."""
        ...


class PolicyEngine(Protocol):
    """Decides by the policies of one set."""

    @property
    def version(self) -> str:
        """The digest of the policy set."""
        ...

    @property
    def limits(self) -> Limits:
        """The limits of the policy set."""
        ...

    def context_fields(self, request: DecisionRequest) -> frozenset[ContextField]:
        """Return the context fields that policies which could match this caller and tool read: the decision may depend
        on them. May return too many, never too few."""
        ...

    def decide(self, request: DecisionRequest) -> Verdict:
        """Return the verdict. Calls that no policy permits are denied, and so are calls for which a policy fails.

        Raises POLICY_ENGINE_ERROR when there is no decision at all.
        """
        ...

    @property
    def clears_labels(self) -> bool:
        """Whether a policy of the set removes labels from sessions."""
        ...

    def evaluate(self, request: DecisionRequest) -> Evaluation:
        """Start an evaluation: determine the context fields, and keep the partial result for the verdict."""
        ...


class Evaluation(Protocol):
    """A started evaluation of one request."""

    @property
    def context_fields(self) -> frozenset[ContextField]:
        """The result of PolicyEngine.context_fields for the request."""
        ...

    def verdict(self, request: DecisionRequest) -> Verdict:
        """Return the result of PolicyEngine.decide for the same request, with its labels."""
        ...

    def certain_denial(self) -> Verdict | None:
        """Return the denial by policies that read nothing but the caller and the tool; None without one."""
        ...


class EngineProvider(Protocol):
    """Provides the engine of the active policy set."""

    @property
    def current(self) -> PolicyEngine:
        """The engine of the active set. Read it once per decision, so that one set makes the whole decision."""
        ...


class SessionLabels(Protocol):
    """The labels of sessions."""

    async def find(self, request: DecisionRequest) -> FoundLabels:
        """Return the labels of the session and of the token's chain."""
        ...

    async def add(self, request: DecisionRequest, labels: Iterable[str], decision: str) -> tuple[str, ...]:
        """Store labels durably, with the decision that brought them, and return the new ones. Raises
        SERVICE_UNAVAILABLE."""
        ...

    async def clear(self, request: DecisionRequest, labels: Iterable[str], decision: str) -> tuple[str, ...]:
        """Remove labels from the session, keep on record which decision did, and return those that it had. Raises
        SERVICE_UNAVAILABLE."""
        ...


class Journal(Protocol):
    """The journal of decisions, for explanation and replay."""

    def record(
        self, decision: Decision, request: DecisionRequest, context_fields: frozenset[ContextField] | None
    ) -> None:
        """Queue a decision without waiting; `context_fields` is None when policy was not evaluated."""
        ...


class Revocations(Protocol):
    """The store of revocations."""

    async def find_token(self, token_id: str) -> TokenRecord | None:
        """Return a token of the ledger; None for a token that this mesh did not issue."""
        ...

    async def last_issued(self, subject: str) -> datetime | None:
        """Return when the newest token of a subject or agent was issued."""
        ...

    async def signed_with(self, key_id: str) -> bool:
        """Return whether any token was signed with this key."""
        ...

    async def find(self, target: RevocationTarget) -> Revocation | None:
        """Return the newest unexpired revocation of a target."""
        ...

    async def add(self, revocation: Revocation) -> Revocation:
        """Store a revocation durably in the feed and return it with its sequence number."""
        ...

    async def page(self, *, before: int | None, limit: int, now: datetime, tenant: str = "") -> Sequence[Revocation]:
        """Return unexpired revocations, newest first, with sequence numbers below `before`; with a tenant, those that
        concern it."""
        ...


class InvalidationFeed(Protocol):
    """The feed of events that invalidate caches."""

    def announce(self) -> None:
        """Wake every replica to poll the feed."""
        ...

    async def wait_until_applied(self, sequence: int) -> None:
        """Return when this replica has applied the feed up to this sequence number."""
        ...

    def watch(self) -> AsyncIterator[Invalidation]:
        """Yield a snapshot, then each change, and a heartbeat at least once a second. Ends with SERVICE_UNAVAILABLE
        when this replica shuts down."""
        ...
