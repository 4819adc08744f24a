"""One way out of one sandbox: the connections of a confined process, each checked, led on or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from services.executor.adapters.sandbox.egress.destination import NAME_INVALID, AllowedDestinations, printable
from services.executor.adapters.sandbox.egress.dialer import Dialer, PrivateAddressError, Streams
from services.executor.adapters.sandbox.egress.relay import IdleTimer, Relay, TrafficExceededError, TrafficQuota
from services.executor.adapters.sandbox.egress.request_head import (
    InvalidTargetError,
    MalformedError,
    RequestHead,
    parse_request_head,
)

ADDRESS_NOT_ALLOWED = "address_not_allowed"
TRAFFIC_LIMIT = "traffic_limit"
_MOST_REMEMBERED = 32
_LINGER_SECONDS, _LINGER_READS, _LINGER_PIECE = 1.0, 32, 64 << 10
_STATUS = {400: "Bad Request", 403: "Forbidden", 431: "Too Large", 502: "Bad Gateway", 503: "Too Many Connections"}


@dataclass(frozen=True, slots=True)
class EgressLimits:
    """What one way out may be used for."""

    head_bytes: int = 16 << 10
    head_seconds: float = 10.0
    connect_seconds: float = 5.0
    idle_seconds: float = 60.0
    connections: int = 32
    """At once."""
    traffic_bytes: int = 256 << 20
    """In both directions together, for each account."""


DEFAULT_LIMITS = EgressLimits()


@dataclass(frozen=True, slots=True)
class EgressRefusal:
    """A place that a confined process wanted to reach and was not led to. The host is its own word, made fit to be shown."""

    host: str
    port: int
    reason: str


class _RefusedError(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class EgressListener:
    """The way out of one sandbox. It reaches the plan's places and no others, and remembers what it refused."""

    def __init__(
        self,
        path: Path,
        allowed: AllowedDestinations,
        dialer: Dialer,
        limits: EgressLimits,
        on_close: Callable[[EgressListener], object],
    ) -> None:
        self._path = path
        self._allowed = allowed
        self._dialer = dialer
        self._limits = limits
        self._on_close = on_close
        self._quota = TrafficQuota(limits.traffic_bytes)
        self._refused: list[EgressRefusal] = []
        self._carried: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._closed = False

    @property
    def path(self) -> str:
        """Where its socket is, as a plan's `egress_socket`."""
        return str(self._path)

    @property
    def violations(self) -> tuple[EgressRefusal, ...]:
        """What was refused since the account was opened, the first of it at least."""
        return tuple(self._refused)

    def take(self) -> tuple[EgressRefusal, ...]:
        """Return the violations and begin a new account: what comes from now on belongs to the next call, also on a connection that this
        one left open."""
        taken, self._refused = tuple(self._refused), []
        self._quota.reset()
        return taken

    async def open(self) -> None:
        """Listen. The socket is for whoever is shown it: its name cannot be guessed, and its folder not be listed."""
        self._server = await asyncio.start_unix_server(self._accept, self.path, limit=self._limits.head_bytes)
        self._path.chmod(0o666)

    async def close(self) -> None:
        """Stop listening, end every connection, and leave no socket behind."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        carried = tuple(self._carried)
        for task in carried:
            task.cancel()
        await asyncio.gather(*carried, return_exceptions=True)
        self._path.unlink(missing_ok=True)
        self._on_close(self)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            # Whoever came while it was being closed.
            writer.transport.abort()
            return
        if len(self._carried) >= self._limits.connections:
            _answer(writer, 503, "too_many_connections")
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve((reader, writer)))
        self._carried.add(task)
        task.add_done_callback(self._carried.discard)

    async def _serve(self, client: Streams) -> None:
        try:
            try:
                head = await self._head(client[0])
                server = await self._dial(head)
            except _RefusedError as away:
                await _turn_away(client, away)
            else:
                await self._carry(head, client, server)
            await _flushed(client[1], self._limits.idle_seconds)
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            client[1].transport.abort()

    async def _head(self, reader: asyncio.StreamReader) -> RequestHead:
        try:
            # For all of it together: a byte now and then does not keep a connection.
            async with asyncio.timeout(self._limits.head_seconds):
                return parse_request_head(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            raise _RefusedError(431, "head_too_large") from None
        except MalformedError:
            raise _RefusedError(400, "malformed") from None
        except InvalidTargetError as error:
            raise self._refuse(str(error), 0, NAME_INVALID) from None

    async def _dial(self, head: RequestHead) -> Streams:
        destination = head.destination
        if reason := self._allowed.refusal(destination):
            raise self._refuse(destination.host, destination.port, reason)
        try:
            return await self._dialer.connect(destination)
        except PrivateAddressError:
            raise self._refuse(destination.host, destination.port, ADDRESS_NOT_ALLOWED) from None
        except OSError:
            raise _RefusedError(502, "unreachable") from None

    async def _carry(self, head: RequestHead, client: Streams, server: Streams) -> None:
        quota, idle_timer = self._quota, IdleTimer(self._limits.idle_seconds)
        outward, inward = Relay(client[0], server[1], quota, idle_timer), Relay(server[0], client[1], quota, idle_timer)
        try:
            async with asyncio.TaskGroup() as both:
                if head.tunnel:
                    client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    both.create_task(_until_end(outward, server[1]))
                    await _until_end(inward, client[1])
                else:
                    server[1].write(head.forwarded)
                    sending = both.create_task(
                        outward.copy_chunked() if head.chunked else outward.copy_exactly(head.length)
                    )
                    await inward.copy_all()
                    sending.cancel()
            if head.tunnel:
                await _flushed(server[1], idle_timer.idle)
        except* TrafficExceededError:
            self._refuse(head.destination.host, head.destination.port, TRAFFIC_LIMIT)
        except* (OSError, MalformedError):
            # One end is gone, or broke its own framing: there is nobody left to tell.
            pass
        finally:
            # Closed with a word, it would stay for as long as the server lets what was written to it wait: for ever, if it likes.
            server[1].transport.abort()

    def _refuse(self, host: str, port: int, reason: str) -> _RefusedError:
        if len(self._refused) < _MOST_REMEMBERED:
            self._refused.append(EgressRefusal(printable(host), port, reason))
        return _RefusedError(403, reason)


def _answer(writer: asyncio.StreamWriter, status: int, reason: str) -> None:
    line = f"HTTP/1.1 {status} {_STATUS[status]}\r\n"
    writer.write(
        f"{line}X-Toolmesh-Refusal: {reason}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode("ascii")
    )


async def _turn_away(client: Streams, away: _RefusedError) -> None:
    """Answer, and read on for a moment: closed upon unread bytes, a socket would take the answer with it."""
    _answer(client[1], away.status, away.reason)
    with suppress(OSError):
        client[1].write_eof()
        async with asyncio.timeout(_LINGER_SECONDS):
            for _ in range(_LINGER_READS):
                if not await client[0].read(_LINGER_PIECE):
                    return


async def _until_end(relay: Relay, writer: asyncio.StreamWriter) -> None:
    await relay.copy_all()
    with suppress(OSError):
        writer.write_eof()


async def _flushed(writer: asyncio.StreamWriter, seconds: float) -> None:
    """Close a connection and return when all that was written to it is gone. Raises OSError when nobody takes it in time."""
    writer.close()
    async with asyncio.timeout(seconds):
        await writer.wait_closed()
