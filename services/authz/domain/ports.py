"""What authorization needs from the outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from libs.common.auth.identity import Identity
from services.authz.domain.model import LedgerEntry, Question, Verdict


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
        """Return the key that new tokens are signed with."""
        ...

    async def jwks(self) -> bytes:
        """Return every public key that tokens may still be verified with, as a JSON Web Key Set."""
        ...


class Ledger(Protocol):
    """The memory of which tokens were issued."""

    async def record(self, entry: LedgerEntry) -> None:
        """Return when the entry is durable. Raises SERVICE_UNAVAILABLE when it cannot be kept."""
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

    def judge(self, question: Question) -> Verdict:
        """Return what policy says. What no policy permits is denied, and so is whatever a policy fails to evaluate.

        Raises POLICY_ENGINE_ERROR when there is no answer at all.
        """
        ...
