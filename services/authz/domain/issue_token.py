"""IssueToken: mints a user-tier token that carries exactly what was asked, and remembers that it did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from libs.common.auth.identity import Grant
from libs.common.clock import Clock
from libs.common.errors import MeshError, Violation
from libs.common.ids import new_id
from libs.common.names import ToolName
from libs.common.semver import Constraint
from services.authz.domain.errors import grant_refused, token_too_large
from services.authz.domain.model import USER_TIER, IssuedToken, LedgerEntry, TokenRequest
from services.authz.domain.ports import KeyRing, Ledger

DEFAULT_LIFETIME = 3600


@dataclass(frozen=True)
class IssueToken:
    """Mints tokens in the name of one issuer."""

    keys: KeyRing
    ledger: Ledger
    clock: Clock
    issuer: str
    audience: str
    max_lifetime: int
    max_token_bytes: int

    async def __call__(self, asked: TokenRequest) -> IssuedToken:
        """Return the token. It is in the ledger before anybody holds it. Raises INVALID_REQUEST for what cannot be granted."""
        violations = [*refusals(asked, self.max_lifetime)]
        if violations:
            raise grant_refused(violations)
        key = await self.keys.active()
        claims = self._claims(asked)
        token = await key.sign(claims)
        if len(token) > self.max_token_bytes:
            raise token_too_large(self.max_token_bytes)
        await self.ledger.record(_entry(claims, asked, key.kid))
        return IssuedToken(token, claims)

    def _claims(self, asked: TokenRequest) -> dict[str, Any]:
        now = int(self.clock.now().timestamp())
        audiences = asked.audiences or (self.audience,)
        # Times are whole seconds. A fraction is dropped, so that no token outlives what was asked.
        lifetime = min(DEFAULT_LIFETIME, self.max_lifetime) if asked.lifetime is None else int(asked.lifetime)
        return {
            "iss": self.issuer,
            "sub": asked.subject,
            "aud": audiences[0] if len(audiences) == 1 else list(audiences),
            "jti": new_id(),
            "iat": now,
            "nbf": now,
            "exp": now + lifetime,
            "tier": USER_TIER,
            "scope": " ".join(asked.scopes),
            "tools": [{"tool": grant.tool, "version": grant.version_constraint} for grant in asked.tools],
            "tenant": asked.tenant,
            "groups": list(asked.groups),
            "trust": asked.trust_level,
            "act": [],
        }


def refusals(asked: TokenRequest, max_lifetime: int) -> Iterator[Violation]:
    """Yield everything about a request that the contract's own rules cannot see and that no token may carry."""
    if not asked.tools and not asked.scopes:
        yield Violation("tools", "grant.empty", "a token must grant a tool or a scope")
    if asked.lifetime is not None and not 1 <= asked.lifetime <= max_lifetime:
        yield Violation("lifetime", "lifetime.limit", f"must be between 1 and {max_lifetime} seconds")
    for index, audience in enumerate(asked.audiences):
        if not audience:
            yield Violation(f"audiences[{index}]", "audience.empty", "an audience must have a name")
    for index, grant in enumerate(asked.tools):
        yield from _grant_refusals(f"tools[{index}]", grant)


def _grant_refusals(path: str, grant: Grant) -> Iterator[Violation]:
    if "*" not in grant.tool and not _names_a_tool(grant.tool):
        yield Violation(f"{path}.tool", "grant.tool", "no tool can have this name")
    if grant.version_constraint.strip() == "latest":
        # Which version is the latest is not known where the token is used, so the grant would mean any version.
        message = "a token cannot follow the latest version; leave it empty for any, or name a range"
        yield Violation(f"{path}.version_constraint", "grant.version", message)
    elif not _is_constraint(grant.version_constraint):
        yield Violation(f"{path}.version_constraint", "grant.version", "is not a version constraint")


def _names_a_tool(reference: str) -> bool:
    try:
        ToolName.parse(reference)
    except MeshError:
        return False
    return True


def _is_constraint(text: str) -> bool:
    try:
        Constraint.parse(text)
    except MeshError:
        return False
    return True


def _entry(claims: dict[str, Any], asked: TokenRequest, key_id: str) -> LedgerEntry:
    return LedgerEntry(
        token_id=claims["jti"],
        subject=asked.subject,
        tier=USER_TIER,
        issued_at=datetime.fromtimestamp(claims["iat"], UTC),
        expires_at=datetime.fromtimestamp(claims["exp"], UTC),
        key_id=key_id,
        scopes=asked.scopes,
        tools=asked.tools,
    )
