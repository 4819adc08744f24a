"""RevokeToken: revokes tokens and all tokens derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from libs.common.auth.identity import Identity
from libs.common.auth.tokens import CLOCK_SKEW
from libs.common.runtime.clock import Clock
from services.authz.domain.errors import key_not_found, revocation_forbidden, token_not_found
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
        """Return the revocation. Without a caller the peer itself revokes. Raises NOT_FOUND for an unknown target, and
        PERMISSION_DENIED if the caller may not revoke it."""
        if caller is not None and ADMIN_SCOPE not in caller.scopes and target.kind != "token":
            raise revocation_forbidden(ADMIN_SCOPE)
        expires_at = await self._expiry(target, caller)
        revocation = None if target.kind == "subject" else await self.revocations.find(target)
        if revocation is None:
            by = peer if caller is None else caller.subject
            at = await self._revocation_time(target)
            revocation = await self.revocations.add(Revocation(0, target, reason, by, at, expires_at))
            self.feed.announce()
        await self.feed.wait_until_applied(revocation.sequence)
        return revocation

    async def _expiry(self, target: RevocationTarget, caller: Identity | None) -> datetime:
        """Return when every token that the revocation applies to has expired."""
        skew = timedelta(seconds=CLOCK_SKEW)
        if target.kind == "token":
            return (await self._find_revocable(target.value, caller)).expires_at + skew
        if target.kind == "subject":
            return self.clock.now() + timedelta(seconds=self.max_lifetime) + skew
        if target.value not in await self.keys.published() and not await self.revocations.signed_with(target.value):
            raise key_not_found(target.value)
        return NEVER

    async def _find_revocable(self, token_id: str, caller: Identity | None) -> TokenRecord:
        record = await self.revocations.find_token(token_id)
        if record is None:
            raise token_not_found(token_id)
        if caller is None or ADMIN_SCOPE in caller.scopes or caller.token_id in {token_id, *record.ancestors}:
            return record
        raise revocation_forbidden(ADMIN_SCOPE)

    async def _revocation_time(self, target: RevocationTarget) -> datetime:
        """Return the time up to which tokens are revoked: now, or the issue time of the newest token of the subject if
        another replica's clock is ahead."""
        now = self.clock.now()
        newest = await self.revocations.last_issued(target.value) if target.kind == "subject" else None
        return now if newest is None else max(now, newest)
