"""MCP over Streamable HTTP, to checked addresses only: no redirects, no cookies, no proxies of the environment."""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import httpcore

from libs.common.egress.public_addresses import PublicAddresses
from libs.common.json.jsonio import dump
from services.executor.adapters.runners.http.retry_after import parse_rate_limit, parse_retry_after
from services.executor.adapters.upstreams.mcp.secrets import NO_SECRETS, ServerSecrets
from services.executor.adapters.upstreams.mcp.session import Definition, McpSession
from services.executor.adapters.upstreams.mcp.transport import (
    AnswerTooLargeError,
    CallClient,
    CredentialRefusedError,
    Message,
    Params,
    RateLimitedError,
    RpcError,
    ServerLostError,
    answer_to,
    hand_over,
    read_lines,
    read_message,
)
from services.executor.domain.scheduling.heavy_work import WorkShare

Resolve = Callable[[str], Awaitable[Sequence[str]]]
_CONNECT_SECONDS = 10.0
_CONNECTIONS = 16
_MAX_ERROR_BYTES = 64 * 1024
_MAX_SESSION_ID = 1024
_INVALID_REQUEST = -32600
_UNAUTHORIZED, _RATE_LIMITED = 401, 429
# A server without a handshake, or without this endpoint, answers `initialize` with one of these.
_NOT_SERVED = frozenset({400, 404, 405, 406, 415})
_CONNECTION_FAILURES = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    ssl.SSLError,
    OSError,
)
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class SessionExpiredError(Exception):
    """The server has forgotten the session. The request was not served."""


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Resolves a host once, checks every address, and connects to a checked one (no DNS rebinding)."""

    def __init__(self, resolve: Resolve, addresses: PublicAddresses, *, plaintext: bool) -> None:
        """Plain HTTP goes to internal networks only."""
        self._resolve, self._addresses, self._plaintext = resolve, addresses, plaintext
        self._inner, self._public = httpcore.AnyIOBackend(), PublicAddresses(())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that answers. Raises httpcore.ConnectError."""
        try:
            addresses = await self._resolve(host)
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses or not all(self._is_allowed(address) for address in addresses):
            raise httpcore.ConnectError("the host has no address that this executor may connect to")
        for address in addresses[:-1]:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
        return await self._inner.connect_tcp(addresses[-1], port, timeout, local_address, socket_options)

    async def connect_unix_socket(self, *args: Any, **kwargs: Any) -> httpcore.AsyncNetworkStream:
        """Refuse: a server is never a socket of this machine."""
        raise httpcore.ConnectError("not a host")

    async def sleep(self, seconds: float) -> None:
        """Pause between attempts."""
        await self._inner.sleep(seconds)

    def _is_allowed(self, address: str) -> bool:
        if not self._addresses.is_allowed(address):
            return False
        return not (self._plaintext and self._public.is_allowed(address))


class HttpTransport:
    """Implements Transport: every message is a POST, and a request is answered in its response."""

    def __init__(self, url: str, backend: httpcore.AsyncNetworkBackend, share: WorkShare, max_bytes: int) -> None:
        """Large messages are parsed in the share of the owner."""
        parts = urlsplit(url)
        self._url, self._share, self._max_bytes = url, share, max_bytes
        self._host = parts.netloc
        self._next_id = 0
        self._revision = self._session_id = ""
        self._modern = False
        self._limited_for: float | None = None
        self.list_changed = asyncio.Event()
        self.secrets = NO_SECRETS
        """What later requests carry as headers."""
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl.create_default_context(), max_connections=_CONNECTIONS, network_backend=backend
        )

    async def request(self, method: str, params: Params, client: CallClient | None = None) -> dict[str, Any]:
        """Implement `Transport.request`. Raises SessionExpiredError, too. Closing the response stops the server."""
        self._next_id += 1
        number = self._next_id
        if client is not None:
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": number}}
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        # Those of this request: another call may come with newer ones meanwhile.
        secrets = self.secrets
        try:
            async with self._post(message, secrets) as response:
                self._limited_for = _rate_limit(response) or self._limited_for
                answer = await self._read_answer(response, number, client, secrets)
                if method == "initialize":
                    self._keep_session(response)
        except _CONNECTION_FAILURES as cause:
            raise _lost(cause) from None
        return answer.result()

    async def notify(self, method: str, params: Params) -> None:
        """Implement `Transport.notify`. A server may ignore it."""
        try:
            async with self._post({"jsonrpc": "2.0", "method": method, "params": params}, self.secrets):
                pass
        except _CONNECTION_FAILURES as cause:
            raise _lost(cause) from None

    async def listen(self, client: CallClient, opened: asyncio.Event) -> None:
        """Implement `Transport.listen`: the stream of the session."""
        secrets = self.secrets
        headers = [*self._headers(secrets), (b"accept", b"text/event-stream")]
        timeouts = {"connect": _CONNECT_SECONDS, "pool": _CONNECT_SECONDS}
        try:
            async with self._pool.stream(
                "GET", self._url, headers=headers, extensions={"timeout": timeouts}
            ) as response:
                if response.status != 200 or not _header(response, b"content-type").startswith("text/event-stream"):
                    raise ServerLostError("the server has no stream of notifications")
                opened.set()
                async for payload in self._events(response):
                    await self._take(await self._parse(payload, secrets), client, secrets)
        except _CONNECTION_FAILURES as cause:
            raise _lost(cause) from None
        raise ServerLostError("the server ended its stream of notifications")

    def adopt(self, revision: str, *, modern: bool) -> None:
        """Implement `Transport.adopt`: later messages name the revision in a header."""
        self._revision, self._modern = revision, modern

    def take_limit(self) -> float | None:
        """Return, once, for how long the server has nothing left, by the RateLimit headers of its answers."""
        seconds, self._limited_for = self._limited_for, None
        return seconds

    def forget_session(self) -> None:
        """Begin without a session."""
        self._revision = self._session_id = ""

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.aclose()

    def _post(self, message: dict[str, Any], secrets: ServerSecrets) -> Any:
        headers = [
            *self._headers(secrets),
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
        ]
        if self._modern and "method" in message:
            headers.append((b"mcp-method", str(message["method"]).encode()))
            named_by = _NAMED_BY.get(message["method"])
            if named_by is not None:
                headers.append((b"mcp-name", _header_text(str(message["params"][named_by]))))
        body = dump(message)
        headers.append((b"content-length", str(len(body)).encode()))
        timeouts = {"connect": _CONNECT_SECONDS, "pool": _CONNECT_SECONDS}
        return self._pool.stream("POST", self._url, headers=headers, content=body, extensions={"timeout": timeouts})

    def _headers(self, secrets: ServerSecrets) -> list[tuple[bytes, bytes]]:
        """Return the headers of every request: the session, its revision and the credentials."""
        headers = [(b"host", self._host.encode()), (b"user-agent", b"toolmesh")]
        if self._revision:
            headers.append((b"mcp-protocol-version", self._revision.encode()))
        if self._session_id:
            headers.append((b"mcp-session-id", self._session_id.encode()))
        return headers + [(name.encode(), value.encode()) for name, value in secrets.places.items()]

    async def _read_answer(
        self, response: httpcore.Response, number: int, client: CallClient | None, secrets: ServerSecrets
    ) -> Message:
        kind = _header(response, b"content-type").partition(";")[0].strip().lower()
        if response.status != 200:
            return await self._read_refusal(response, kind, secrets)
        if kind == "text/event-stream":
            async for payload in self._events(response):
                message = await self._parse(payload, secrets)
                if message.id == number and message.method is None:
                    return message
                await self._take(message, client, secrets)
            raise ServerLostError("the server closed the connection before it answered")
        if kind != "application/json":
            raise ServerLostError("the server answered with something else than a message")
        return await self._parse(await _read_all(response.aiter_stream(), self._max_bytes), secrets)

    async def _take(self, message: Message, client: CallClient | None, secrets: ServerSecrets) -> None:
        """Take what a server sends before its answer: notifications, and requests to its client."""
        params = message.fields.get("params")
        if message.method == "notifications/tools/list_changed":
            self.list_changed.set()
        if message.method is not None and message.id is not None:
            answer = await answer_to(client, message.method, params)
            async with self._post({"jsonrpc": "2.0", "id": message.id, **answer}, secrets):
                pass
        elif client is not None:
            hand_over(client, message.method, params)

    async def _parse(self, payload: bytes, secrets: ServerSecrets) -> Message:
        def parse() -> Message:
            # A server may repeat what it was sent.
            return read_message(secrets.remove_from(payload), self._max_bytes)

        return await self._share.run_if_large(len(payload), parse)

    async def _read_refusal(self, response: httpcore.Response, kind: str, secrets: ServerSecrets) -> Message:
        status = response.status
        if status == _UNAUTHORIZED and secrets.names:
            raise CredentialRefusedError(secrets.names[0], status)
        if status == _RATE_LIMITED:
            limit, asked = self.take_limit(), parse_retry_after(_header(response, b"retry-after"), datetime.now(UTC))
            raise RateLimitedError(limit if asked is None else asked)
        if status == 404 and self._session_id:
            raise SessionExpiredError
        if kind == "application/json":
            with suppress(AnswerTooLargeError, ServerLostError):
                message = await self._parse(await _read_all(response.aiter_stream(), _MAX_ERROR_BYTES), secrets)
                if isinstance(message.fields.get("error"), dict):
                    return message
        if status in _NOT_SERVED:
            raise RpcError(_INVALID_REQUEST, f"the server answered with HTTP status {status}")
        raise ServerLostError(f"the server answered with HTTP status {status}")

    async def _events(self, response: httpcore.Response) -> AsyncIterator[bytes]:
        data: list[bytes] = []
        size = 0
        async for line in read_lines(response.aiter_stream(), self._max_bytes):
            if line.startswith(b"data:"):
                data.append(line[5:].lstrip())
                size += len(line)
                if size > self._max_bytes:
                    raise AnswerTooLargeError(self._max_bytes)
            elif not line and data:
                text = b"\n".join(data)
                data, size = [], 0
                if text.strip():
                    yield text

    def _keep_session(self, response: httpcore.Response) -> None:
        session_id = _header(response, b"mcp-session-id")
        if len(session_id) > _MAX_SESSION_ID or not session_id.isascii() or not session_id.isprintable():
            raise ServerLostError("the server sent a session id that is none")
        self._session_id = session_id


class HttpServer:
    """A server over HTTP, with a session that is opened again when the server has forgotten it."""

    def __init__(self, transport: HttpTransport, share: WorkShare, *, max_age: float) -> None:
        """Definitions older than `max_age` seconds are read again before a call."""
        self.transport, self._share = transport, share
        self.session = McpSession(transport, share)
        self._max_age, self._listed = max_age, float("-inf")
        self._refreshing = asyncio.Lock()

    async def open(self) -> None:
        """Agree on a revision, and list the tools. Raises like a request."""
        self.transport.forget_session()
        self.session = McpSession(self.transport, self._share)
        await self.session.open()
        await self.list_tools()

    async def list_tools(self) -> None:
        """List the tools. Raises like a request."""
        self.transport.list_changed.clear()
        await self.session.list_tools()
        self._listed = time.monotonic()

    async def refresh(self) -> None:
        """Open the session, or list the tools again when the definitions are old. Raises like a request."""
        async with self._refreshing:
            if time.monotonic() - self._listed < self._max_age and not self.transport.list_changed.is_set():
                return
            if self._listed == float("-inf"):
                await self.open()
                return
            try:
                await self.list_tools()
            except SessionExpiredError:
                await self.open()

    async def call(self, definition: Definition, arguments: Params, client: CallClient | None) -> dict[str, Any]:
        """Call a tool, once more in a new session if the server did not serve the first request."""
        try:
            return await self.session.call(definition, arguments, client)
        except SessionExpiredError:
            await self.open()
            return await self.session.call(definition, arguments, client)

    async def close(self) -> None:
        """Close every connection."""
        await self.transport.close()


async def _read_all(chunks: AsyncIterable[bytes], limit: int) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            raise AnswerTooLargeError(limit)
    return bytes(body)


def _header(response: httpcore.Response, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in response.headers if key.lower() == name), "")


def _rate_limit(response: httpcore.Response) -> float | None:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
    return parse_rate_limit(headers, datetime.now(UTC))


def _header_text(text: str) -> bytes:
    """Return a header value; text that is not plain travels as the protocol says, in base64."""
    if text.isascii() and text.isprintable() and text == text.strip():
        return text.encode()
    return b"=?base64?" + base64.b64encode(text.encode()) + b"?="


def _lost(cause: Exception) -> ServerLostError:
    """Return why a server did not answer. The texts of the client may repeat the address, so they are not kept."""
    if isinstance(cause, httpcore.ConnectError | ssl.SSLError):
        return ServerLostError("the server cannot be reached, or has an address that this executor may not use")
    if isinstance(cause, httpcore.TimeoutException):
        return ServerLostError("the server did not accept a connection in time")
    return ServerLostError("the server closed the connection before it answered")
