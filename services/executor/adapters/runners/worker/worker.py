"""A worker: a sandboxed process that serves calls to one function, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from services.executor.adapters.runners.worker.answer import printable
from services.executor.adapters.runners.worker.frames import FrameError, as_frame, encode_frame, read_frame
from services.executor.adapters.sandbox.egress.listener import EgressListener
from services.executor.adapters.sandbox.port import ExitReport, SandboxedProcess
from services.executor.domain.scheduling.heavy_work import WorkShare

# How long a process may take to exit after it closed stdout, so that its own exit status is known.
_EXIT_SECONDS = 0.5
_READY_BYTES = 16 * 1024
# A worker that holds more than this share of its memory limit between calls is replaced before it runs out.
_MAX_IDLE_MEMORY = 0.6


class WorkerGoneError(Exception):
    """The process ended, or it broke the protocol and was killed."""

    def __init__(self, ending: ExitReport) -> None:
        super().__init__()
        self.ending = ending


class WorkerBrokenError(Exception):
    """The worker could not load its function."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__()
        self.kind = kind
        self.detail = detail


class EarlyFrames(Protocol):
    """Takes the frames that precede the answer of a call. Each method raises MalformedAnswerError."""

    def payload_bytes(self, frame: dict[str, Any]) -> int:
        """Return the size of the payload that follows a frame; 0 for none. It is within its limit."""
        ...

    async def take(self, frame: dict[str, Any], payload: bytes) -> None:
        """Take a frame and its payload."""
        ...


class Worker:
    """One worker process, from its start to its end."""

    def __init__(
        self,
        process: SandboxedProcess,
        memory_bytes: int,
        gate: EgressListener | None = None,
        code: object = None,
    ) -> None:
        """`code` is referred to as long as the process may read it."""
        self.gate, self.code = gate, code
        self.calls = 0
        self.previews = False
        """True if the tool has a preview function. Known once the worker is ready."""
        self._process = process
        self._memory_bytes = memory_bytes
        self._ready = False
        self._ended = asyncio.create_task(process.wait(), name="worker-ended")

    @property
    def ended(self) -> asyncio.Task[ExitReport]:
        """The task that completes when the process has ended."""
        return self._ended

    def load(self, message: Mapping[str, Any]) -> None:
        """Send the message that names the module and function to load."""
        self._process.stdin.write(encode_frame(message))

    async def ready(self) -> None:
        """Wait until the worker can take a call.

        Raises WorkerBrokenError or WorkerGoneError; no call has started then.
        """
        if self._ready:
            return
        try:
            is_early, frame = await self._receive(_READY_BYTES)
        except FrameError:
            raise WorkerGoneError(await self.end()) from None
        if is_early:
            raise WorkerGoneError(await self.end())
        if "broken" in frame:
            await self.end()
            raise WorkerBrokenError(printable(frame["broken"])[:100], str(frame.get("detail", "")))
        used_memory = frame.get("ready")
        if type(used_memory) is not int or (self.calls and used_memory > self._memory_bytes * _MAX_IDLE_MEMORY):
            raise WorkerGoneError(await self.end())
        self.previews = frame.get("previews") is True
        self._ready = True

    async def call(
        self,
        request: Mapping[str, Any],
        limit: int,
        early: EarlyFrames,
        share: WorkShare,
        resume_state: bytes | None = None,
        clean: Callable[[bytes], bytes] = bytes,
    ) -> dict[str, Any]:
        """Send a call and return the answer frame. `early` gets the frames before it.

        A large answer is parsed in the share of the caller, after `clean` removed what must not be in it.

        Raises WorkerGoneError, and FrameError for an invalid frame.
        """
        self._ready = False
        self.calls += 1
        with suppress(ConnectionError):
            self._process.stdin.write(encode_frame(request))
            if resume_state is not None:
                self._process.stdin.write(as_frame(resume_state))
            await self._process.stdin.drain()
        while True:
            is_early, frame = await self._receive(limit, share, clean)
            if not is_early:
                return frame
            await early.take(frame, await self._receive_payload(early.payload_bytes(frame)))

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to the call that is under way. Raises ConnectionError."""
        self._process.stdin.write(encode_frame(message))
        await self._process.stdin.drain()

    def request_stop(self, reason: str) -> None:
        """Ask the call that is under way to stop. The process may have ended."""
        with suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(encode_frame({"cancel": reason}))

    async def terminate(self) -> None:
        """Ask the process to end."""
        await self._process.terminate()

    async def end(self) -> ExitReport:
        """Kill the process and its children, close its egress gate and return how it ended."""
        ending = await self._process.kill()
        if self.gate is not None:
            await self.gate.close()
        await self._ended
        self.code = None
        return ending

    async def _receive_payload(self, size: int) -> bytes:
        try:
            return await self._process.stdout.readexactly(size) if size else b""
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerGoneError(await self._end_after_exit()) from None

    async def _receive(
        self, limit: int, share: WorkShare | None = None, clean: Callable[[bytes], bytes] = bytes
    ) -> tuple[bool, dict[str, Any]]:
        try:
            return await read_frame(self._process.stdout, limit, share, clean)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerGoneError(await self._end_after_exit()) from None

    async def _end_after_exit(self) -> ExitReport:
        """Give a process that closed stdout a moment to exit, then kill it."""
        await asyncio.wait({self._ended}, timeout=_EXIT_SECONDS)
        return await self.end()
