"""Keys that calls of this process hold. A lease is short, so that a dead owner is noticed in seconds, and it is renewed for as long as
its call is alive, however long it waits before its run and however long it runs. Calls that end sooner than that cost nothing here."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Mapping, Sequence

from services.executor.adapters.idempotency.claim_rows import ClaimRows
from services.executor.domain.model import Claim

# Renewed this many times before it would run out: a few may fail.
_BEATS = 4


class _Hold:
    """One key that is held. It does not keep its claim alive: what a call has forgotten, whatever befell it, must not block its key for ever."""

    __slots__ = ("claim", "loosened", "until")

    def __init__(self, claim: Claim, until: float) -> None:
        self.claim, self.until, self.loosened = weakref.ref(claim), until, False


class ClaimLeases:
    """Renews what is held, all of it in one statement, and says so when it may no longer be held."""

    def __init__(self, rows: ClaimRows, lease: float, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._rows, self._lease, self._monotonic = rows, lease, monotonic
        self._beat = lease / _BEATS
        self._holds: dict[str, _Hold] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Future[set[str]]] = set()
        self._loosened: Callable[[str], None] = lambda invocation_id: None
        self._failed: Callable[[Exception], None] = lambda cause: None

    def listen(self, loosened: Callable[[str], None], failed: Callable[[Exception], None]) -> None:
        """Be told the invocation whose key may now be somebody else's, while its call still works; and why keys could not be renewed."""
        self._loosened, self._failed = loosened, failed

    def begin(self, claim: Claim, since: float) -> None:
        """Hold a key whose lease was asked for at this moment of the monotonic clock: it lasts no longer than counted from there."""
        self._holds[claim.invocation_id] = _Hold(claim, since + self._lease)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._beat, self._wake)

    def end(self, claim: Claim) -> None:
        """Hold it no longer. Ending twice ends once."""
        self._holds.pop(claim.invocation_id, None)

    def is_held(self, claim: Claim) -> bool:
        """Say whether nobody else can hold the key at this moment. Asks only the clock, which goes on while a process is stopped."""
        hold = self._holds.get(claim.invocation_id)
        return hold is not None and self._monotonic() < hold.until

    async def stop(self) -> None:
        """Renew nothing any more."""
        self._holds.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])

    def _wake(self) -> None:
        self._timer = None
        if self._holds:
            self._renewing = asyncio.create_task(self._renew_and_go_on(), name="claim-leases")

    async def _renew_and_go_on(self) -> None:
        try:
            await self._renew()
        finally:
            if self._holds and self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self._beat, self._wake)

    async def _renew(self) -> None:
        since = self._monotonic()
        due = {claim: hold for claim, hold in self._known() if hold.until - since < self._lease - self._beat / 2}
        if not due:
            return
        try:
            kept = await self._renewed(list(due))
        except Exception as cause:
            # The database is away or slow. Nobody else can take the keys over there either, but it may come back to others first.
            self._failed(cause)
            now = self._monotonic()
            self._doubt({claim: hold for claim, hold in due.items() if now >= hold.until - self._beat})
            return
        for claim, hold in due.items():
            if claim.invocation_id in kept:
                hold.until, hold.loosened = since + self._lease, False
        self._doubt({claim: hold for claim, hold in due.items() if claim.invocation_id not in kept}, gone=True)

    async def _renewed(self, claims: Sequence[Claim]) -> set[str]:
        """Return the invocations that still hold their keys. Raises TimeoutError after a beat, without waiting for the driver to give up:
        with a server that says nothing it takes longer for that than a lease lasts, and runs must be told before theirs ends."""
        asking = asyncio.ensure_future(self._rows.renew(claims, self._lease))
        self._asking.add(asking)
        asking.add_done_callback(self._asked)
        try:
            async with asyncio.timeout(self._beat):
                return await asyncio.shield(asking)
        finally:
            asking.cancel()

    def _asked(self, asking: asyncio.Future[set[str]]) -> None:
        self._asking.discard(asking)
        if not asking.cancelled():
            # Seen by whoever renews if it still waits; otherwise it was told that nobody answered.
            asking.exception()

    def _known(self) -> list[tuple[Claim, _Hold]]:
        """Return what is held for calls that still know of it, and forget the rest: there is nobody left to tell."""
        known = []
        for invocation_id, hold in list(self._holds.items()):
            claim = hold.claim()
            if claim is None:
                del self._holds[invocation_id]
            else:
                known.append((claim, hold))
        return known

    def _doubt(self, holds: Mapping[Claim, _Hold], *, gone: bool = False) -> None:
        for claim, hold in holds.items():
            invocation_id = claim.invocation_id
            if self._holds.get(invocation_id) is not hold:
                # It ended while it was renewed.
                continue
            if gone:
                del self._holds[invocation_id]
            if not hold.loosened:
                hold.loosened = True
                self._loosened(invocation_id)
