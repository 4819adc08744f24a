"""The agent in a tool's pod: starts the tool's process, carries its streams, keeps its limits and reports its end.

`kubectl exec` starts it, so nothing of it is in the container's log. It trusts the executor at the other end of its
standard streams and nothing in the container. When the executor leaves, everything in the container ends.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any

from . import program
from .multiplexer import Multiplexer, ProtocolError
from .streams import CHUNK_BYTES, CONTROL, EVENTS, INPUT, STDIN, STDOUT, Messages, copy_from_stream, copy_to_stream

STDERR_TAIL_BYTES = 16_384
_SILENCE_SECONDS, _CLEANUP_SECONDS, _READ_SECONDS = 60.0, 2.0, 30.0
# The kernel keeps the memory limit by itself; looking for what it killed need not be as quick as counting time.
_WATCH_SECONDS, _MEMORY_WATCH_SECONDS = 0.05, 1.0


class Agent:
    """One tool's process."""

    def __init__(self, connection: Multiplexer, control: Messages, request: dict[str, Any]) -> None:
        self._connection, self._control, self._request = connection, control, request
        self._over, self._killed, self._stderr_tail = "", False, b""
        self._ended = asyncio.Event()
        self._cpu_before, self._ooms_before = program.cpu_seconds(), program.oom_kills()
        self._process: subprocess.Popen[bytes] | None = None
        self._pumps: list[asyncio.Task[None]] = []
        """Of standard output and events, and of standard error as the last."""
        self._feeds: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Run the process to its end and report it."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._look)
        if self._request["egress"]:
            await asyncio.start_unix_server(self._connect_out, self._request["egress"])
        code = await self._start()
        await self._control.send({"started": True})
        watches = [asyncio.create_task(watch()) for watch in (self._watch_cpu, self._watch_memory)]
        if code is None:
            await self._ended.wait()
        for watch in watches:
            watch.cancel()
        await self._end_others()
        await self._control.send({"facts": self._facts(code)})
        # What the process wrote is sent as fast as it is read.
        await asyncio.wait(self._pumps, timeout=_READ_SECONDS)

    def kill(self) -> None:
        """Kill the process and all others."""
        self._killed = True
        program.kill_others()

    def terminate(self) -> None:
        """Ask the process to end."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    async def _start(self) -> int | None:
        """Start the process. Returns its exit status if it cannot be executed."""
        inputs = [os.pipe() for _ in range(2 if self._request["events"] else 1)]
        outputs = [os.pipe() for _ in range(3 if self._request["events"] else 2)]
        ends = [inputs[0][0], outputs[0][1], outputs[1][1]]
        if self._request["events"]:
            ends += [outputs[2][1], inputs[1][0]]
        code = None
        try:
            self._process = program.start_program(self._request, ends)
        except OSError as error:
            self._stderr_tail, code = f"{error.strerror}\n".encode(), 127
        finally:
            for end in ends:
                os.close(end)
        await self._attach([write for _, write in inputs], [read for read, _ in outputs])
        return code

    async def _attach(self, writing: list[int], reading: list[int]) -> None:
        for descriptor, number in zip(writing, (STDIN, INPUT), strict=False):
            writer = await _open_writer(descriptor)
            self._feeds.append(asyncio.create_task(copy_from_stream(self._connection.stream(number), writer)))
        stdout, stderr, *events = [await _open_reader(descriptor) for descriptor in reading]
        for reader, number in zip((stdout, *events), (STDOUT, EVENTS), strict=False):
            self._pumps.append(asyncio.create_task(copy_to_stream(reader, self._connection.stream(number))))
        self._pumps.append(asyncio.create_task(self._keep_tail(stderr)))

    async def _keep_tail(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(CHUNK_BYTES):
            self._stderr_tail = (self._stderr_tail + chunk)[-STDERR_TAIL_BYTES:]

    async def _connect_out(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to the executor's egress proxy."""
        try:
            stream = await self._connection.open()
        except ConnectionError:
            writer.close()
            return
        await asyncio.gather(copy_to_stream(reader, stream), copy_from_stream(stream, writer))

    async def _watch_cpu(self) -> None:
        limit, share = self._request["cpu_seconds"], max(0.01, self._request["millicpus"] / 1000)
        while (remaining := limit - (program.cpu_seconds() - self._cpu_before)) > 0:  # noqa: ASYNC110
            await asyncio.sleep(max(_WATCH_SECONDS, remaining / share))
        self._end_for("cpu")

    async def _watch_memory(self) -> None:
        """End the tool once the kernel killed one of its processes: the others may wait for that one without end."""
        if self._ooms_before is None:
            return
        while program.oom_kills() == self._ooms_before:  # noqa: ASYNC110
            await asyncio.sleep(_MEMORY_WATCH_SECONDS)
        self._end_for("memory")

    def _end_for(self, limit: str) -> None:
        self._over = limit
        program.kill_others()

    async def _end_others(self) -> None:
        """End what the process left behind, and wait until its standard error is read."""
        until = time.monotonic() + _CLEANUP_SECONDS
        while not program.kill_others() and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        await asyncio.wait(self._pumps[-1:], timeout=_CLEANUP_SECONDS)

    def _look(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            self._ended.set()

    def _facts(self, code: int | None) -> dict[str, Any]:
        """Return what `diagnose` of the executor classifies."""
        status = 0 if self._process is None else self._process.returncode
        code = code if code is not None else 128 - status if status < 0 else status
        ooms = program.oom_kills()
        return {
            "code": None if self._killed else code,
            "outer": 0,
            "over": self._over,
            "killed": self._killed,
            "grouped": [] if ooms is None else ["memory"],
            "oom_kills": 0 if ooms is None else ooms - (self._ooms_before or 0),
            "refused_processes": 0,
            "cpu_seconds": program.cpu_seconds() - self._cpu_before,
            "peak_memory": program.peak_memory_bytes(),
            "stderr_tail": base64.b64encode(self._stderr_tail).decode(),
        }


async def serve() -> None:
    """Take one request and its commands from the executor."""
    reader, writer = await _open_reader(os.dup(0)), await _open_writer(os.dup(1))
    heard = time.monotonic()

    async def receive() -> bytes:
        nonlocal heard
        received = await reader.read(CHUNK_BYTES)
        heard = time.monotonic()
        return received

    async def transmit(content: bytes) -> None:
        writer.write(content)
        await writer.drain()

    connection = Multiplexer(receive, transmit)
    control = Messages(connection.stream(CONTROL))
    for number in (STDIN, STDOUT, EVENTS, INPUT):
        connection.stream(number)
    running = asyncio.create_task(connection.run())
    request = await control.receive()
    if request is None:
        return
    agent = Agent(connection, control, request)
    tasks = [asyncio.create_task(_run(agent, control)), asyncio.create_task(_obey(agent, control))]
    # The executor closes the connection when it has read everything; until then it is heard.
    while not running.done() and time.monotonic() - heard < _SILENCE_SECONDS:
        await asyncio.wait({running}, timeout=1.0)
    for task in tasks:
        task.cancel()


async def _run(agent: Agent, control: Messages) -> None:
    try:
        await agent.run()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        with suppress(ConnectionError):
            await control.send({"failed": f"{type(error).__name__}: {error}"[:500]})


async def _obey(agent: Agent, control: Messages) -> None:
    while (message := await control.receive()) is not None:
        if "kill" in message:
            agent.kill()
        elif "terminate" in message:
            agent.terminate()


async def _open_reader(descriptor: int) -> asyncio.StreamReader:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), open(descriptor, "rb", 0))  # noqa: ASYNC230, SIM115
    return reader


async def _open_writer(descriptor: int) -> asyncio.StreamWriter:
    loop, protocol = asyncio.get_running_loop(), asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, open(descriptor, "wb", 0))  # noqa: ASYNC230, SIM115
    return asyncio.StreamWriter(transport, protocol, None, loop)


def main() -> None:
    """Serve one executor, and end the container."""
    program.hide_memory()
    program.tell_first_process(signal.SIGUSR1)
    try:
        with suppress(ConnectionError, ProtocolError):
            asyncio.run(serve())
    finally:
        program.kill_others()
        program.tell_first_process(signal.SIGTERM)


if __name__ == "__main__":
    main()
