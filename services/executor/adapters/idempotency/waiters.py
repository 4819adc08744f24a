"""Waits for claims that another call holds. One statement at a time polls all of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from libs.common.errors import MeshError, Reason
from libs.common.runtime.backoff import Backoff
from services.executor.adapters.idempotency.claim_rows import ClaimRows, Row, Scope

_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.02, 0.25, 1.5


class _WatchedClaim:
    """One claim that calls wait for."""

    __slots__ = ("arguments_digest", "outcome", "waiting")

    def __init__(self, arguments_digest: str) -> None:
        self.arguments_digest = arguments_digest
        self.outcome: asyncio.Future[Row | None] = asyncio.get_running_loop().create_future()
        self.waiting = 0


class ClaimWaiters:
    """Polls claims while calls wait for them and wakes the calls when a claim is no longer in progress."""

    def __init__(self, rows: ClaimRows) -> None:
        self._rows = rows
        self._watched: dict[Scope, _WatchedClaim] = {}
        self._poll_now = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes of the claims that calls wait for."""
        return tuple(self._watched)

    def is_watching(self, scope: Scope, arguments_digest: str) -> bool:
        """Return whether the claim is already watched with the same arguments, so no statement is needed."""
        watched = self._watched.get(scope)
        return watched is not None and watched.arguments_digest == arguments_digest

    async def wait(self, scope: Scope, arguments_digest: str) -> Row | None:
        """Wait until the claim is no longer in progress and return its row; None if it may be acquired now.

        Raises SERVICE_UNAVAILABLE if the database cannot be read.
        """
        watched = self._watched.get(scope)
        if watched is None:
            watched = self._watched[scope] = _WatchedClaim(arguments_digest)
            self._start_polling()
        watched.waiting += 1
        try:
            # The future is shared: a canceled call must not cancel it for the others.
            return await asyncio.shield(watched.outcome)
        except MeshError as error:
            # Copied, because each call adds its own metadata to its error.
            raise MeshError(error.reason, retry_after=error.retry_after) from error
        finally:
            watched.waiting -= 1
            if not watched.waiting and self._watched.get(scope) is watched:
                del self._watched[scope]

    def poll_soon(self, scope: Scope) -> None:
        """Poll now, because this process has just changed the claim."""
        if scope in self._watched:
            self._poll_now.set()

    async def stop(self) -> None:
        """Stop polling."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait([self._polling])

    def _start_polling(self) -> None:
        # A new claim restarts the backoff.
        self._poll_now.set()
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll_while_waiting(), name="claim-waiters")

    async def _poll_while_waiting(self) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, growth=_GROWTH, jitter=0.0)
        try:
            while self._watched:
                if self._poll_now.is_set():
                    self._poll_now.clear()
                    backoff.reset()
                await self._poll()
                with suppress(TimeoutError):
                    async with asyncio.timeout(backoff.next_pause()):
                        await self._poll_now.wait()
        finally:
            self._polling = None

    async def _poll(self) -> None:
        polled = dict(self._watched)
        try:
            rows = await self._rows.read(polled)
        except Exception as error:
            for scope, watched in polled.items():
                self._wake(scope, watched, error)
            return
        for scope, watched in polled.items():
            in_progress, row = rows.get(scope, (False, None))
            if not in_progress:
                self._wake(scope, watched, None if row is None or row.in_progress else row)

    def _wake(self, scope: Scope, watched: _WatchedClaim, outcome: Row | Exception | None) -> None:
        if self._watched.get(scope) is watched:
            del self._watched[scope]
        if watched.outcome.done() or not watched.waiting:
            return
        if isinstance(outcome, Exception):
            failure = outcome if isinstance(outcome, MeshError) else MeshError(Reason.SERVICE_UNAVAILABLE)
            failure.__cause__ = outcome if failure is not outcome else outcome.__cause__
            watched.outcome.set_exception(failure)
        else:
            watched.outcome.set_result(outcome)
