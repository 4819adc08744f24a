"""Renews the leases of the claims that calls of this process hold.

A lease is short, so that a dead owner is noticed within seconds, and is renewed for as long as its call is alive. Calls
that end before the first renewal cost nothing here.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Mapping, Sequence

from services.executor.adapters.idempotency.claim_rows import ClaimRows
from services.executor.domain.model import Claim

# Renewals per lease duration, so that a few may fail.
_RENEWALS_PER_LEASE = 4


class _Lease:
    """The lease of one claim.

    It refers to its claim weakly: a claim that its call dropped must not stay held for ever.
    """

    __slots__ = ("claim", "reported", "until")

    def __init__(self, claim: Claim, until: float) -> None:
        self.claim, self.until, self.reported = weakref.ref(claim), until, False


class ClaimLeases:
    """Renews all leases in one statement and reports claims that may be lost."""

    def __init__(self, rows: ClaimRows, lease: float, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._rows, self._lease, self._monotonic = rows, lease, monotonic
        self._interval = lease / _RENEWALS_PER_LEASE
        self._leases: dict[str, _Lease] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._statements: set[asyncio.Future[set[str]]] = set()
        self._on_lost: Callable[[str], None] = lambda invocation_id: None
        self._on_failure: Callable[[Exception], None] = lambda cause: None

    def listen(self, on_lost: Callable[[str], None], on_failure: Callable[[Exception], None]) -> None:
        """Set the callbacks for an invocation whose claim may be lost while it runs, and for failed renewals."""
        self._on_lost, self._on_failure = on_lost, on_failure

    def begin(self, claim: Claim, since: float) -> None:
        """Start to renew a lease that was requested at `since` on the monotonic clock; it is counted from there."""
        self._leases[claim.invocation_id] = _Lease(claim, since + self._lease)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._start_renewal)

    def end(self, claim: Claim) -> None:
        """Stop to renew a lease. Does nothing the second time."""
        self._leases.pop(claim.invocation_id, None)

    def is_held(self, claim: Claim) -> bool:
        """Return whether the lease is certainly valid.

        Uses only the monotonic clock, which also advances while the process is stopped.
        """
        lease = self._leases.get(claim.invocation_id)
        return lease is not None and self._monotonic() < lease.until

    async def stop(self) -> None:
        """Stop all renewals."""
        self._leases.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])

    def _start_renewal(self) -> None:
        self._timer = None
        if self._leases:
            self._renewing = asyncio.create_task(self._renew_and_reschedule(), name="claim-leases")

    async def _renew_and_reschedule(self) -> None:
        try:
            await self._renew()
        finally:
            if self._leases and self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self._interval, self._start_renewal)

    async def _renew(self) -> None:
        since = self._monotonic()
        due = {claim: lease for claim, lease in self._live() if lease.until - since < self._lease - self._interval / 2}
        if not due:
            return
        try:
            renewed = await self._renew_rows(list(due))
        except Exception as cause:
            # No replica can take a claim over while the database is down, but it may recover for another one first.
            self._on_failure(cause)
            now = self._monotonic()
            self._report_lost({claim: lease for claim, lease in due.items() if now >= lease.until - self._interval})
            return
        for claim, lease in due.items():
            if claim.invocation_id in renewed:
                lease.until, lease.reported = since + self._lease, False
        lost = {claim: lease for claim, lease in due.items() if claim.invocation_id not in renewed}
        self._report_lost(lost, gone=True)

    async def _renew_rows(self, claims: Sequence[Claim]) -> set[str]:
        """Return the invocations that still hold their claims. Raises TimeoutError after one interval.

        It does not wait for the driver's own timeout, which is longer than a lease: runs must learn of a loss in time.
        """
        statement = asyncio.ensure_future(self._rows.renew(claims, self._lease))
        self._statements.add(statement)
        statement.add_done_callback(self._on_done)
        try:
            async with asyncio.timeout(self._interval):
                return await asyncio.shield(statement)
        finally:
            statement.cancel()

    def _on_done(self, statement: asyncio.Future[set[str]]) -> None:
        self._statements.discard(statement)
        if not statement.cancelled():
            # Marks the exception as retrieved; a renewal that timed out was reported as such.
            statement.exception()

    def _live(self) -> list[tuple[Claim, _Lease]]:
        """Return the leases whose claim object still exists, and drop the rest."""
        live = []
        for invocation_id, lease in list(self._leases.items()):
            claim = lease.claim()
            if claim is None:
                del self._leases[invocation_id]
            else:
                live.append((claim, lease))
        return live

    def _report_lost(self, leases: Mapping[Claim, _Lease], *, gone: bool = False) -> None:
        for claim, lease in leases.items():
            invocation_id = claim.invocation_id
            if self._leases.get(invocation_id) is not lease:
                # The call ended during the renewal.
                continue
            if gone:
                del self._leases[invocation_id]
            if not lease.reported:
                lease.reported = True
                self._on_lost(invocation_id)
