"""The egress socket of one sandbox: accepts connections, checks each destination, and relays or refuses it."""

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
_MAX_REFUSALS = 32
_LINGER_SECONDS, _LINGER_READS, _LINGER_BYTES = 1.0, 32, 64 << 10
_STATUS = {400: "Bad Request", 403: "Forbidden", 431: "Too Large", 502: "Bad Gateway", 503: "Too Many Connections"}


@dataclass(frozen=True, slots=True)
class EgressLimits:
    """Limits of one egress listener."""

    head_bytes: int = 16 << 10
    head_seconds: float = 10.0
    connect_seconds: float = 5.0
    idle_seconds: float = 60.0
    connections: int = 32
    """Concurrent connections."""
    traffic_bytes: int = 256 << 20
    """In both directions together, per call."""


DEFAULT_LIMITS = EgressLimits()


@dataclass(frozen=True, slots=True)
class EgressRefusal:
    """A refused connection. The host is untrusted text in printable form."""

    host: str
    port: int
    reason: str


class _RefusedError(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class EgressListener:
    """Serves one sandbox. Connects only to the plan's destinations and records what it refused."""

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
        self._refusals: list[EgressRefusal] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._closed = False

    @property
    def path(self) -> str:
        """Return the path of its socket, for a plan's `egress_socket`."""
        return str(self._path)

    @property
    def refusals(self) -> tuple[EgressRefusal, ...]:
        """Return the first refusals of the current call."""
        return tuple(self._refusals)

    def take_refusals(self) -> tuple[EgressRefusal, ...]:
        """Return the refusals and reset the quota: from now on everything counts for the next call, also on connections
        that are still open."""
        refusals, self._refusals = tuple(self._refusals), []
        self._quota.reset()
        return refusals

    async def open(self) -> None:
        """Listen. The socket is world-writable, but its name is random and its directory cannot be listed."""
        self._server = await asyncio.start_unix_server(self._accept, self.path, limit=self._limits.head_bytes)
        self._path.chmod(0o666)

    async def close(self) -> None:
        """Stop listening, close every connection and remove the socket."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        connections = tuple(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        self._path.unlink(missing_ok=True)
        self._on_close(self)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            # Accepted while closing.
            writer.transport.abort()
            return
        if len(self._connections) >= self._limits.connections:
            _write_response(writer, 503, "too_many_connections")
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve((reader, writer)))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, client: Streams) -> None:
        try:
            try:
                head = await self._read_head(client[0])
                server = await self._dial(head)
            except _RefusedError as refused:
                await _send_refusal(client, refused)
            else:
                await self._relay(head, client, server)
            await _close_flushed(client[1], self._limits.idle_seconds)
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            client[1].transport.abort()

    async def _read_head(self, reader: asyncio.StreamReader) -> RequestHead:
        try:
            # One timeout for the whole head, so that a slow sender cannot hold the connection.
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
        if reason := self._allowed.refusal_reason(destination):
            raise self._refuse(destination.host, destination.port, reason)
        try:
            return await self._dialer.connect(destination)
        except PrivateAddressError:
            raise self._refuse(destination.host, destination.port, ADDRESS_NOT_ALLOWED) from None
        except OSError:
            raise _RefusedError(502, "unreachable") from None

    async def _relay(self, head: RequestHead, client: Streams, server: Streams) -> None:
        quota, idle_timer = self._quota, IdleTimer(self._limits.idle_seconds)
        outward, inward = Relay(client[0], server[1], quota, idle_timer), Relay(server[0], client[1], quota, idle_timer)
        try:
            async with asyncio.TaskGroup() as both:
                if head.tunnel:
                    client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    both.create_task(_copy_until_end(outward, server[1]))
                    await _copy_until_end(inward, client[1])
                else:
                    server[1].write(head.forwarded)
                    sending = both.create_task(
                        outward.copy_chunked() if head.chunked else outward.copy_exactly(head.length)
                    )
                    await inward.copy_all()
                    sending.cancel()
            if head.tunnel:
                await _close_flushed(server[1], idle_timer.idle)
        except* TrafficExceededError:
            self._refuse(head.destination.host, head.destination.port, TRAFFIC_LIMIT)
        except* (OSError, MalformedError):
            # One end disconnected or sent malformed framing: no answer is possible.
            pass
        finally:
            # An orderly close would wait for a server that does not read, possibly forever.
            server[1].transport.abort()

    def _refuse(self, host: str, port: int, reason: str) -> _RefusedError:
        if len(self._refusals) < _MAX_REFUSALS:
            self._refusals.append(EgressRefusal(printable(host), port, reason))
        return _RefusedError(403, reason)


def _write_response(writer: asyncio.StreamWriter, status: int, reason: str) -> None:
    line = f"HTTP/1.1 {status} {_STATUS[status]}\r\n"
    writer.write(
        f"{line}X-Toolmesh-Refusal: {reason}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode("ascii")
    )


async def _send_refusal(client: Streams, refused: _RefusedError) -> None:
    """Send the refusal and read on for a moment: closing a socket with unread bytes would discard the response."""
    _write_response(client[1], refused.status, refused.reason)
    with suppress(OSError):
        client[1].write_eof()
        async with asyncio.timeout(_LINGER_SECONDS):
            for _ in range(_LINGER_READS):
                if not await client[0].read(_LINGER_BYTES):
                    return


async def _copy_until_end(relay: Relay, writer: asyncio.StreamWriter) -> None:
    await relay.copy_all()
    with suppress(OSError):
        writer.write_eof()


async def _close_flushed(writer: asyncio.StreamWriter, seconds: float) -> None:
    """Close a connection after all written data was sent. Raises OSError if the peer does not read in time."""
    writer.close()
    async with asyncio.timeout(seconds):
        await writer.wait_closed()
