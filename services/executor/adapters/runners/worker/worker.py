"""A worker: a process in a sandbox that answers calls to one function, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from services.executor.adapters.runners.worker.answer import printable
from services.executor.adapters.runners.worker.frames import FrameError, framed, receive
from services.executor.adapters.sandbox.egress.listener import EgressListener
from services.executor.adapters.sandbox.port import ExitReport, SandboxedProcess

# How long after its last word a process may take to be gone by itself, so that we learn why it went.
_FAREWELL = 0.5
_READY_BYTES = 16 * 1024
# More than this of its memory held between calls, and it is started anew before it runs out in the middle of one.
_FULL = 0.6


class WorkerGoneError(Exception):
    """The process is no more, or no longer to be believed."""

    def __init__(self, ending: ExitReport) -> None:
        super().__init__()
        self.ending = ending


class WorkerBrokenError(Exception):
    """The worker could not load its function."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__()
        self.kind = kind
        self.detail = detail


class Worker:
    """One process, from its start to its end."""

    def __init__(self, confined: SandboxedProcess, memory_bytes: int, gate: EgressListener | None = None) -> None:
        self.gate = gate
        self.calls = 0
        self.previews = False
        """True if its function comes with another that says what it would do. Known once it is ready."""
        self._confined = confined
        self._memory_bytes = memory_bytes
        self._ready = False
        self._ended = asyncio.create_task(confined.wait(), name="worker-ended")

    @property
    def ended(self) -> asyncio.Task[ExitReport]:
        """Done when the process is gone."""
        return self._ended

    def open(self, opening: Mapping[str, Any]) -> None:
        """Tell it what to load."""
        self._confined.stdin.write(framed(opening))

    async def ready(self) -> None:
        """Wait until it can take a call. Raises WorkerBrokenError or WorkerGoneError: then no call was begun."""
        if self._ready:
            return
        try:
            frame = await self._receive(_READY_BYTES)
        except FrameError:
            raise WorkerGoneError(await self.end()) from None
        if "broken" in frame:
            await self.end()
            raise WorkerBrokenError(printable(frame["broken"])[:100], str(frame.get("detail", "")))
        held = frame.get("ready")
        if type(held) is not int or (self.calls and held > self._memory_bytes * _FULL):
            raise WorkerGoneError(await self.end())
        self.previews = frame.get("previews") is True
        self._ready = True

    async def ask(self, request: Mapping[str, Any], limit: int) -> dict[str, Any]:
        """Send a call and return the frame that answers it. Raises WorkerGoneError, and FrameError for what is no frame of the
        mesh."""
        self._ready = False
        self.calls += 1
        with suppress(ConnectionError):
            self._confined.stdin.write(framed(request))
            await self._confined.stdin.drain()
        return await self._receive(limit)

    async def end(self) -> ExitReport:
        """End the process and all it started, close its way out, and return how it ended."""
        ending = await self._confined.kill()
        if self.gate is not None:
            await self.gate.close()
        await self._ended
        return ending

    async def _receive(self, limit: int) -> dict[str, Any]:
        try:
            return await receive(self._confined.stdout, limit)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerGoneError(await self._last()) from None

    async def _last(self) -> ExitReport:
        """How it ended, now that it has fallen silent; one that only closed its mouth is ended."""
        await asyncio.wait({self._ended}, timeout=_FAREWELL)
        return await self.end()
