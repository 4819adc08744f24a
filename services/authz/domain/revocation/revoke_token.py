"""RevokeToken: revokes tokens and all tokens derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from libs.common.auth.identity import Identity
from libs.common.auth.tokens import CLOCK_SKEW
from libs.common.runtime.clock import Clock
from services.authz.domain.errors import key_not_found, other_tenant, revocation_forbidden, token_not_found
from services.authz.domain.model import Revocation, RevocationTarget, TokenRecord
from services.authz.domain.ports import InvalidationFeed, KeyRing, Revocations

ADMIN_SCOPE = "authz:admin"
# A stolen key can sign tokens with any date, so its revocation never expires.
NEVER = datetime(9999, 12, 31, tzinfo=UTC)


@dataclass(frozen=True)
class RevokeToken:
    """Revokes tokens. When it returns, this replica refuses them; every other process does so within a second."""

    revocations: Revocations
    feed: InvalidationFeed
    keys: KeyRing
    clock: Clock
    max_lifetime: int

    async def execute(self, target: RevocationTarget, reason: str, *, caller: Identity | None, peer: str) -> Revocation:
        """Return the revocation. Without a caller the peer itself revokes. Raises NOT_FOUND for an unknown target and
        for a token of another tenant, PERMISSION_DENIED if the caller may not revoke it, and AUTHORITY_EXCEEDED if a
        caller of a tenant revokes a key."""
        if caller is not None and target.kind != "token":
            _refuse_unless_admin(caller, target)
        expires_at, tenant = await self._expiry_and_tenant(target, caller)
        revocation = None if target.kind == "subject" else await self.revocations.find(target)
        if revocation is None:
            by = peer if caller is None else caller.subject
            at = await self._revocation_time(target)
            revocation = await self.revocations.add(Revocation(0, target, reason, by, at, expires_at, tenant))
            self.feed.announce()
        await self.feed.wait_until_applied(revocation.sequence)
        return revocation

    async def _expiry_and_tenant(self, target: RevocationTarget, caller: Identity | None) -> tuple[datetime, str]:
        """Return when every token that the revocation applies to has expired, and the tenant that it concerns."""
        skew = timedelta(seconds=CLOCK_SKEW)
        if target.kind == "token":
            record = await self._find_revocable(target.value, caller)
            return record.expires_at + skew, record.tenant
        if target.kind == "subject":
            # A subject may hold tokens of several tenants; an administrator of one of them takes back those alone.
            expires_at = self.clock.now() + timedelta(seconds=self.max_lifetime) + skew
            return expires_at, "" if caller is None else caller.tenant
        if target.value not in await self.keys.published() and not await self.revocations.signed_with(target.value):
            raise key_not_found(target.value)
        return NEVER, ""

    async def _find_revocable(self, token_id: str, caller: Identity | None) -> TokenRecord:
        record = await self.revocations.find_token(token_id)
        if record is None:
            raise token_not_found(token_id)
        if caller is None or caller.token_id in {token_id, *record.ancestors}:
            return record
        if caller.tenant not in ("", record.tenant):
            # Another tenant's token is as good as unknown.
            raise token_not_found(token_id)
        if ADMIN_SCOPE not in caller.scopes:
            raise revocation_forbidden(ADMIN_SCOPE)
        return record

    async def _revocation_time(self, target: RevocationTarget) -> datetime:
        """Return the time up to which tokens are revoked: now, or the issue time of the newest token of the subject if
        another replica's clock is ahead."""
        now = self.clock.now()
        newest = await self.revocations.last_issued(target.value) if target.kind == "subject" else None
        return now if newest is None else max(now, newest)


def _refuse_unless_admin(caller: Identity, target: RevocationTarget) -> None:
    if ADMIN_SCOPE not in caller.scopes:
        raise revocation_forbidden(ADMIN_SCOPE)
    if caller.tenant and target.kind == "key":
        # A key signs the tokens of all tenants.
        raise other_tenant()
