"""What authorization needs from the outside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, Protocol

from libs.common.auth.identity import Identity
from services.authz.domain.decisions.limits import Limits
from services.authz.domain.model import (
    Decision,
    Fact,
    Invalidation,
    Issued,
    LedgerEntry,
    OutsideToken,
    Question,
    ResolvedDid,
    Revocation,
    Target,
    Verdict,
)


class SigningKey(Protocol):
    """A key that tokens are signed with."""

    @property
    def kid(self) -> str:
        """The RFC 7638 thumbprint of its public half."""
        ...

    async def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a token with exactly these claims. Never holds up other calls while it signs."""
        ...


class KeyRing(Protocol):
    """The keys of this issuer, as they are now."""

    async def active(self) -> SigningKey:
        """Return the key that new tokens are signed with. Raises SERVICE_UNAVAILABLE when every key was revoked."""
        ...

    async def jwks(self) -> bytes:
        """Return every public key that tokens may still be verified with, as a JSON Web Key Set."""
        ...

    def glance(self) -> bytes | None:
        """Return the same without waiting, if it is fresh; None if it must be looked at first."""
        ...

    async def published(self) -> AbstractSet[str]:
        """Return the ids of those keys."""
        ...


class Ledger(Protocol):
    """The memory of which tokens were issued."""

    async def record(self, entry: LedgerEntry) -> None:
        """Return when the entry is durable. Raises SERVICE_UNAVAILABLE when it cannot be kept."""
        ...


class OutsideTokens(Protocol):
    """The tokens of outside issuers that this mesh trusts."""

    async def verify(self, token: str) -> OutsideToken:
        """Return what a token says about its subject. Raises the TOKEN_ reason that it deserves; SERVICE_UNAVAILABLE when the
        issuer's keys cannot be had."""
        ...


class DidResolver(Protocol):
    """Finds out whom decentralised identifiers belong to."""

    async def resolve(self, did: str) -> ResolvedDid:
        """Return what is known of the DID, or raise DID_NOT_FOUND; SERVICE_UNAVAILABLE when nobody could be asked."""
        ...


class TokenReader(Protocol):
    """Tells good tokens from bad ones."""

    async def verify(self, token: str) -> Identity:
        """Return the identity behind a token, or raise one of the TOKEN_ reasons."""
        ...


class PolicyEngine(Protocol):
    """Answers by policy."""

    @property
    def version(self) -> str:
        """The digest of the policies that are asked."""
        ...

    @property
    def limits(self) -> Limits:
        """What those policies let be spent."""
        ...

    def reads(self, question: Question) -> frozenset[Fact]:
        """Return every fact that a policy which could match this caller and tool reads: with other facts, or without
        them, the answer may be another one. May name too many, never too few."""
        ...

    def judge(self, question: Question) -> Verdict:
        """Return what policy says. What no policy permits is denied, and so is whatever a policy fails to evaluate.

        Raises POLICY_ENGINE_ERROR when there is no answer at all.
        """
        ...

    def consider(self, question: Question) -> Consideration:
        """Begin to answer: find out what `reads` says, and keep what that took for the verdict."""
        ...


class Consideration(Protocol):
    """A question that is half answered."""

    @property
    def reads(self) -> frozenset[Fact]:
        """What PolicyEngine.reads says about it."""
        ...

    def verdict(self, labels: frozenset[str] | None) -> Verdict:
        """Return what PolicyEngine.judge says about the question with these labels of its session."""
        ...


class Engines(Protocol):
    """The policies that are asked now."""

    @property
    def current(self) -> PolicyEngine:
        """The active set. Whoever decides takes it once, so that one decision is made by one set."""
        ...


class SessionLabels(Protocol):
    """What sessions have seen. A label is never taken back."""

    async def of(self, question: Question) -> frozenset[str]:
        """Return everything that this session or this line of tokens carries, with all that was added before the call."""
        ...

    async def add(self, question: Question, labels: Iterable[str]) -> tuple[str, ...]:
        """Return those that were not there before, once they are durable. Raises SERVICE_UNAVAILABLE."""
        ...


class Journal(Protocol):
    """The memory of decisions, for explanation and replay."""

    def record(self, decision: Decision, question: Question, reads: frozenset[Fact] | None) -> None:
        """Take a decision to be kept, without waiting; `reads` is None when policy was not asked."""
        ...


class Revocations(Protocol):
    """The memory of what was taken back."""

    async def issued(self, token_id: str) -> Issued | None:
        """Return what the ledger knows of a token; None for one that this mesh did not issue."""
        ...

    async def last_issued(self, subject: str) -> datetime | None:
        """Return when the newest token of a subject or agent was made."""
        ...

    async def signed_with(self, key_id: str) -> bool:
        """Say whether any token was signed with this key."""
        ...

    async def find(self, target: Target) -> Revocation | None:
        """Return the newest revocation of a target that still matters."""
        ...

    async def add(self, revocation: Revocation) -> Revocation:
        """Return the revocation with its place in the feed, once it is durable there."""
        ...

    async def page(self, *, before: int | None, limit: int, now: datetime) -> Sequence[Revocation]:
        """Return revocations that still matter, newest first, beginning before a place in the feed."""
        ...


class InvalidationFeed(Protocol):
    """What is told to those who remember answers."""

    def announce(self) -> None:
        """Let every replica look at the feed now."""
        ...

    async def reached(self, sequence: int) -> None:
        """Return when this replica itself keeps to everything up to this place in the feed."""
        ...

    def watch(self) -> AsyncIterator[Invalidation]:
        """Yield everything that matters, then each change, and a word without one at least once a second. Ends with
        SERVICE_UNAVAILABLE when this replica is about to end."""
        ...
