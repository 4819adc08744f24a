"""Waiting for keys that somebody else holds. However many calls wait for however many keys, one statement at a time looks."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from libs.common.errors import MeshError, Reason
from services.executor.adapters.idempotency.claim_rows import ClaimRows, Row, Scope

_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.02, 0.25, 1.5


class _Watch:
    """One key that is waited for."""

    __slots__ = ("arguments_digest", "change", "waiting")

    def __init__(self, arguments_digest: str) -> None:
        self.arguments_digest = arguments_digest
        self.change: asyncio.Future[Row | None] = asyncio.get_running_loop().create_future()
        self.waiting = 0


class ClaimWatch:
    """Tells calls when their keys are worth another look. Nothing is asked while nobody waits."""

    def __init__(self, rows: ClaimRows) -> None:
        self._rows = rows
        self._watches: dict[Scope, _Watch] = {}
        self._nudged = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The keys that somebody waits for."""
        return tuple(self._watches)

    def knows(self, scope: Scope, arguments_digest: str) -> bool:
        """Say whether the key is known to be under way with these very arguments: then there is no need to ask."""
        watch = self._watches.get(scope)
        return watch is not None and watch.arguments_digest == arguments_digest

    async def change(self, scope: Scope, arguments_digest: str) -> Row | None:
        """Wait until the key is no longer under way and return its row; None if whoever is first may hold it now. Raises
        SERVICE_UNAVAILABLE when nobody can look."""
        watch = self._watches.get(scope)
        if watch is None:
            watch = self._watches[scope] = _Watch(arguments_digest)
            self._begin()
        watch.waiting += 1
        try:
            # The future is everybody's: who leaves must not cancel it for the others.
            return await asyncio.shield(watch.change)
        except MeshError as error:
            # One for each call, because each call's own is completed with what concerns that call.
            raise MeshError(error.reason, retry_after=error.retry_after) from error
        finally:
            watch.waiting -= 1
            if not watch.waiting and self._watches.get(scope) is watch:
                del self._watches[scope]

    def nudge(self, scope: Scope) -> None:
        """Look soon: the key has just changed, by this process's own doing."""
        if scope in self._watches:
            self._nudged.set()

    async def stop(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    def _begin(self) -> None:
        # A new key is looked at soon, whatever the pace for the older ones.
        self._nudged.set()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_until_nobody_waits(), name="claim-watch")

    async def _look_until_nobody_waits(self) -> None:
        pause = _FIRST_PAUSE
        try:
            while self._watches:
                if self._nudged.is_set():
                    self._nudged.clear()
                    pause = _FIRST_PAUSE
                await self._look()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._nudged.wait()
                pause = min(pause * _GROWTH, _LONGEST_PAUSE)
        finally:
            self._looking = None

    async def _look(self) -> None:
        asked = dict(self._watches)
        try:
            found = await self._rows.look(asked)
        except Exception as error:
            for scope, watch in asked.items():
                self._end(scope, watch, error)
            return
        for scope, watch in asked.items():
            under_way, row = found.get(scope, (False, None))
            if not under_way:
                self._end(scope, watch, None if row is None or row.under_way else row)

    def _end(self, scope: Scope, watch: _Watch, outcome: Row | Exception | None) -> None:
        if self._watches.get(scope) is watch:
            del self._watches[scope]
        if watch.change.done() or not watch.waiting:
            return
        if isinstance(outcome, Exception):
            failure = outcome if isinstance(outcome, MeshError) else MeshError(Reason.SERVICE_UNAVAILABLE)
            failure.__cause__ = outcome if failure is not outcome else outcome.__cause__
            watch.change.set_exception(failure)
        else:
            watch.change.set_result(outcome)
