"""One tool process in a pod, as the executor sees it: its streams, its end and its cleanup."""

from __future__ import annotations

import asyncio
import base64
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from services.executor.adapters.sandbox.exit_report import diagnose
from services.executor.adapters.sandbox.pipes import ProcessPipes, attach_pipes, open_pipes
from services.executor.adapters.sandbox.pods.inside.multiplexer import Multiplexer, ProtocolError, Stream
from services.executor.adapters.sandbox.pods.inside.streams import (
    CONTROL,
    EVENTS,
    INPUT,
    STDIN,
    STDOUT,
    Messages,
    copy_from_stream,
    copy_to_stream,
)
from services.executor.adapters.sandbox.pods.pod_api import ExecSession
from services.executor.adapters.sandbox.port import EventPipes, ExitReport, Plan
from services.executor.domain import run_errors

PING_SECONDS = 10.0
_KILL_SECONDS, _READ_SECONDS = 1.0, 30.0


class _Facts(msgspec.Struct, forbid_unknown_fields=True):
    """What the agent reports of the end. The container is not trusted, so its form is checked."""

    code: int | None
    outer: int
    over: str
    killed: bool
    grouped: list[str]
    oom_kills: int
    refused_processes: int
    cpu_seconds: float
    peak_memory: int
    stderr_tail: str


class PodProcess:
    """A SandboxedProcess in a pod. It removes the pod when it ends, even if `wait` is never called."""

    def __init__(self, plan: Plan, session: ExecSession, remove: Callable[[], Awaitable[bool]]) -> None:
        """`remove` removes the pod, and returns whether the kernel ended it for its memory."""
        self._plan, self._session, self._remove = plan, session, remove
        self._connection = Multiplexer(session.receive, session.send, self._open_egress)
        self._control = Messages(self._connection.stream(CONTROL))
        for number in (STDIN, STDOUT, EVENTS, INPUT):
            self._connection.stream(number)
        self._killed, self._discards = False, asyncio.Event()
        self._background, self._outputs = list[asyncio.Task[Any]](), list[asyncio.Task[Any]]()
        self._pipes: ProcessPipes
        self._finishing: asyncio.Task[ExitReport]
        self._removing: asyncio.Task[None] | None = None

    async def begin(self, request: dict[str, Any]) -> None:
        """Start the tool's process. Raises SANDBOX_UNAVAILABLE and leaves the pod."""
        self._in_background(self._run_connection())
        self._pipes = await self._attach()
        try:
            await self._control.send(request)
            answer = await self._control.receive()
            if answer is None or "started" not in answer:
                raise ConnectionResetError
        except BaseException as error:
            await self._disconnect()
            self._pipes.close_readers()
            if isinstance(error, ConnectionError):
                raise run_errors.sandbox_failed("the process could not be started in its pod") from None
            raise
        self._finishing = asyncio.create_task(self._finish())
        self._in_background(self._ping())

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """Return the writer of its standard input."""
        return self._pipes.writers[0]

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Return the reader of its standard output."""
        return self._pipes.readers[0]

    @property
    def event_pipes(self) -> EventPipes | None:
        """Return the pipes of its events and its input."""
        return self._pipes.event_pipes

    async def wait(self) -> ExitReport:
        """Wait until all of its processes have ended; buffered output can still be read."""
        return await asyncio.shield(self._finishing)

    async def terminate(self) -> None:
        """Send SIGTERM to the first process inside."""
        with suppress(ConnectionError):
            await self._control.send({"terminate": True})

    async def kill(self) -> ExitReport:
        """Kill all of its processes and discard unread output. A pod that does not obey is removed with them."""
        if not self._finishing.done():
            self._killed = True
            with suppress(ConnectionError):
                await self._control.send({"kill": True})
            await asyncio.wait({self._finishing}, timeout=_KILL_SECONDS)
            if not self._finishing.done():
                await self._disconnect()
        report = await self.wait()
        self._discards.set()
        self._pipes.close_readers()
        return report

    async def removed(self) -> None:
        """Wait until the process has ended and its pod is removed."""
        await self.wait()
        if self._removing is not None:
            await asyncio.shield(self._removing)

    async def _attach(self) -> ProcessPipes:
        """Connect the pipes of the process to its streams."""
        (to_read, stdin), (stdout, to_write), *further = open_pipes(4 if self._plan.has_events else 2)
        writing, reading, fed, filled = [stdin], [stdout], [to_read], [to_write]
        if further:
            (events, from_events), (to_inputs, inputs) = further
            writing, reading = [*writing, inputs], [*reading, events]
            fed, filled = [*fed, to_inputs], [*filled, from_events]
        pipes, ends = await attach_pipes(writing, reading), await attach_pipes(filled, fed)
        for index, number in zip(range(len(fed)), (STDIN, INPUT), strict=False):
            self._in_background(self._feed(ends, index, self._connection.stream(number)))
        for writer, number in zip(ends.writers, (STDOUT, EVENTS), strict=False):
            copying = copy_from_stream(self._connection.stream(number), writer)
            self._outputs.append(asyncio.create_task(copying))
        return pipes

    async def _feed(self, ends: ProcessPipes, index: int, stream: Stream) -> None:
        """Send what is written for the process, until it takes no more."""
        sending = self._in_background(copy_to_stream(ends.readers[index], stream))
        # The process sends nothing here: the end says that it does not read.
        while await stream.read():
            pass
        sending.cancel()
        ends.close_reader(index)

    async def _run_connection(self) -> None:
        with suppress(ProtocolError, ConnectionError):
            await self._connection.run()

    async def _finish(self) -> ExitReport:
        """Wait for the end. Without a report the agent is gone or no longer itself, and the pod ends what is left."""
        facts = _facts_of(await self._control.receive())
        if facts is None:
            facts = _lost_facts(killed=self._killed, out_of_memory=await self._clean_up())
        else:
            self._removing = asyncio.create_task(self._remove_once_read())
        return diagnose(self._plan, facts)

    async def _remove_once_read(self) -> None:
        discarding = asyncio.create_task(self._discards.wait())
        reading = asyncio.ensure_future(asyncio.wait(self._outputs))
        await asyncio.wait({discarding, reading}, timeout=_READ_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        discarding.cancel()
        reading.cancel()
        await self._clean_up()

    async def _clean_up(self) -> bool:
        await self._disconnect()
        return await self._remove()

    async def _disconnect(self) -> None:
        """Leave the agent, which then ends everything in the pod."""
        await self._session.close()
        self._pipes.close_writers()
        # Streams end with the connection. Output that has arrived can still be read.
        await asyncio.wait(self._background[:1], timeout=_KILL_SECONDS)
        for task in self._background:
            task.cancel()

    async def _ping(self) -> None:
        with suppress(ConnectionError):
            while True:
                await asyncio.sleep(PING_SECONDS)
                await self._connection.ping()

    def _open_egress(self, stream: Stream) -> None:
        self._background[:] = [task for task in self._background if not task.done()]
        self._in_background(self._carry_out(stream))

    async def _carry_out(self, stream: Stream) -> None:
        """Carry a connection of the tool to the egress proxy, which decides where it leads."""
        try:
            if not self._plan.egress_socket:
                raise ConnectionRefusedError
            reader, writer = await asyncio.open_unix_connection(self._plan.egress_socket)
        except OSError:
            with suppress(ConnectionError):
                await stream.end()
            return
        await asyncio.gather(copy_to_stream(reader, stream), copy_from_stream(stream, writer))

    def _in_background(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(coroutine)
        self._background.append(task)
        return task


def _facts_of(answer: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the reported facts; None for what is no report."""
    try:
        facts: dict[str, Any] = msgspec.to_builtins(msgspec.convert((answer or {})["facts"], _Facts))
        base64.b64decode(facts["stderr_tail"], validate=True)
    except (KeyError, ValueError):
        return None
    return facts if facts["over"] in ("", "cpu", "memory") else None


def _lost_facts(*, killed: bool, out_of_memory: bool) -> dict[str, Any]:
    return {
        "code": None,
        "outer": signal.SIGKILL,
        "over": "",
        "killed": killed and not out_of_memory,
        "grouped": ["memory"],
        "oom_kills": int(out_of_memory),
        "refused_processes": 0,
        "cpu_seconds": 0.0,
        "peak_memory": 0,
        "stderr_tail": "",
    }
