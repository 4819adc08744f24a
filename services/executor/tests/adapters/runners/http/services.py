"""An HTTP service for tests that speaks by hand, so that it can speak wrongly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from libs.common.secret_store.secret import Binding, Secret
from services.executor.domain import errors
from services.executor.domain.resilience.circuit import Admission, CallOutcome, Circuit, CircuitConfig

Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Received(NamedTuple):
    """One request."""

    line: str
    headers: dict[str, str]
    body: bytes


class Service:
    """Answers with the replies in turn, the last one from then on."""

    def __init__(self) -> None:
        self.replies: list[Reply] = [answer(b"{}")]
        self.requests: list[Received] = []
        self.connections, self.port = 0, 0
        self.asked, self.left = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Service]:
        """Listen for as long as the block runs."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append(Received(first, headers, body))
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                self.asked.set()
                await asyncio.wait(
                    {asyncio.ensure_future(reply(writer)), left := asyncio.ensure_future(reader.read(1))},
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if left.done():
                    return
                left.cancel()
                await asyncio.wait({left})
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.left.set()
            writer.close()


def answer(body: bytes, status: str = "200 OK", media_type: str = "application/json", *more: str) -> Reply:
    """Return a reply with this content."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", f"content-type: {media_type}", f"content-length: {len(body)}", *more]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return reply


def raw(text: bytes) -> Reply:
    """Return a reply that writes these bytes and hangs up."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await writer.drain()
        writer.close()

    return reply


async def endless(writer: asyncio.StreamWriter) -> None:
    """Begin an answer that has no end."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1000\r\n" + b" " * 0x1000 + b"\r\n")
        await writer.drain()


async def never(writer: asyncio.StreamWriter) -> None:
    """Take the request and answer nothing."""
    await asyncio.Event().wait()


class MemorySecrets:
    """Secrets by name, without a disk."""

    def __init__(self, **values: str) -> None:
        self.rejected: list[str] = []
        self.secrets = {name: Secret(name, value, Binding(("127.0.0.1",), ("core",))) for name, value in values.items()}

    async def get(self, name: str, tenant: str) -> Secret:
        """Return a secret."""
        if name not in self.secrets:
            raise errors.credential_not_found(name)
        return self.secrets[name]

    async def reject(self, name: str, tenant: str) -> None:
        """Keep which secret a service refused."""
        self.rejected.append(name)


class OwnCircuits:
    """Circuits of one process, without a store."""

    def __init__(self) -> None:
        self.circuits: dict[str, Circuit] = {}
        self.limits: dict[tuple[str, str], float] = {}

    async def limit(self, name: str, party: str, seconds: float) -> None:
        """Hold the calls of a party back until a test takes the limit away."""
        self.limits[name, party] = seconds

    async def admit(self, name: str, config: CircuitConfig, party: str = "") -> Admission:
        """Decide about a call."""
        if (wait := self.limits.get((name, party))) is not None:
            return Admission(admitted=False, wait=wait, limited=True)
        return self.circuits.setdefault(name, Circuit()).admit(config, time.monotonic())

    async def report(self, name: str, config: CircuitConfig, admission: Admission, outcome: CallOutcome) -> None:
        """Count an outcome."""
        self.circuits[name].report(config, admission.generation, outcome, time.monotonic())

    async def half_open(self, namespace: str, config: CircuitConfig) -> None:
        """Let a call try the services of a namespace."""
        for name, circuit in self.circuits.items():
            if name.startswith(f"{namespace}/"):
                circuit.half_open(time.monotonic())

    def abandon(
        self, name: str, config: CircuitConfig, admission: Admission, outcome: CallOutcome = CallOutcome.NONE
    ) -> None:
        """Count an ended call."""
        self.circuits[name].report(config, admission.generation, outcome, time.monotonic())
