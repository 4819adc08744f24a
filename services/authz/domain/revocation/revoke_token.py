"""RevokeToken: takes authority back, with everything that was derived from it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from libs.common.auth.identity import Identity
from libs.common.auth.tokens import CLOCK_SKEW
from libs.common.runtime.clock import Clock
from services.authz.domain.errors import key_not_known, not_theirs_to_revoke, token_not_issued
from services.authz.domain.model import Issued, Revocation, Target
from services.authz.domain.ports import InvalidationFeed, KeyRing, Revocations

ADMIN = "authz:admin"
# A key that was given away can sign at any time, with any date: its revocation never ends.
NEVER = datetime(9999, 12, 31, tzinfo=UTC)


@dataclass(frozen=True)
class RevokeToken:
    """Revokes. When it returns, this replica refuses what was revoked, and every other process hears of it within a second."""

    revocations: Revocations
    feed: InvalidationFeed
    keys: KeyRing
    clock: Clock
    max_lifetime: int

    async def __call__(self, target: Target, reason: str, *, caller: Identity | None, peer: str) -> Revocation:
        """Return the revocation. Without a caller it is the peer's own wish. Raises NOT_FOUND for what this mesh does not
        know, and PERMISSION_DENIED for what is not the caller's to take back."""
        if caller is not None and ADMIN not in caller.scopes and target.kind != "token":
            raise not_theirs_to_revoke(ADMIN)
        expires_at = await self._expiry(target, caller)
        known = None if target.kind == "subject" else await self.revocations.find(target)
        if known is None:
            by = peer if caller is None else caller.subject
            at = await self._moment(target)
            known = await self.revocations.add(Revocation(0, target, reason, by, at, expires_at))
            self.feed.announce()
        await self.feed.reached(known.sequence)
        return known

    async def _expiry(self, target: Target, caller: Identity | None) -> datetime:
        """Return when nothing can hold any more that the revocation applies to."""
        skew = timedelta(seconds=CLOCK_SKEW)
        if target.kind == "token":
            return (await self._their_own(target.value, caller)).expires_at + skew
        if target.kind == "subject":
            return self.clock.now() + timedelta(seconds=self.max_lifetime) + skew
        if target.value not in await self.keys.published() and not await self.revocations.signed_with(target.value):
            raise key_not_known(target.value)
        return NEVER

    async def _their_own(self, token_id: str, caller: Identity | None) -> Issued:
        issued = await self.revocations.issued(token_id)
        if issued is None:
            raise token_not_issued(token_id)
        if caller is None or ADMIN in caller.scopes or caller.token_id in {token_id, *issued.ancestors}:
            return issued
        raise not_theirs_to_revoke(ADMIN)

    async def _moment(self, target: Target) -> datetime:
        """Return until when tokens are taken back: now, or the newest in the ledger if another replica's clock is ahead."""
        now = self.clock.now()
        newest = await self.revocations.last_issued(target.value) if target.kind == "subject" else None
        return now if newest is None else max(now, newest)
