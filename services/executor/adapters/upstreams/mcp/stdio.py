"""MCP over the standard input and output of a sandboxed process: one JSON-RPC message per line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

from libs.common.json.jsonio import dump
from services.executor.adapters.sandbox.egress.listener import EgressListener
from services.executor.adapters.sandbox.port import ExitReport, SandboxedProcess
from services.executor.adapters.upstreams.mcp.secrets import NO_SECRETS, ServerSecrets
from services.executor.adapters.upstreams.mcp.session import McpSession
from services.executor.adapters.upstreams.mcp.transport import (
    AnswerTooLargeError,
    CallClient,
    Message,
    Params,
    ServerLostError,
    answer_to,
    hand_over,
    read_lines,
    read_message,
)
from services.executor.domain.scheduling.heavy_work import WorkShare

_CHUNK_BYTES = 64 * 1024
_MAX_QUESTIONS = 8
_CANCELED, _LIST_CHANGED, _PROGRESS = (
    "notifications/cancelled",
    "notifications/tools/list_changed",
    "notifications/progress",
)
# The number of a client that listens and asks nothing.
_LISTENER = 0


class StdioTransport:
    """Implements Transport. A server that sends something else than messages, or too much, is lost."""

    def __init__(self, process: SandboxedProcess, share: WorkShare, max_bytes: int, secrets: ServerSecrets) -> None:
        """Large messages are parsed in the share of the owner. What the server repeats of its secrets is removed."""
        self._process, self._share, self._max_bytes, self._secrets = process, share, max_bytes, secrets
        self._writing = asyncio.Lock()
        self._pending: dict[int, asyncio.Future[Message]] = {}
        self._clients: dict[int, CallClient] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._next_id = 0
        self._lost: Exception | None = None
        self.list_changed = asyncio.Event()
        self._reading = asyncio.create_task(self._read(), name="mcp-stdio")

    async def request(self, method: str, params: Params, client: CallClient | None = None) -> dict[str, Any]:
        """Implement `Transport.request`."""
        if self._lost is not None:
            raise self._lost
        self._next_id += 1
        number = self._next_id
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[number] = answer
        if client is not None:
            self._clients[number] = client
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": number}}
        try:
            await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            return (await answer).result()
        except asyncio.CancelledError:
            self._request_stop(number)
            raise
        finally:
            self._pending.pop(number, None)
            if self._clients.pop(number, None) is not None:
                for task in self._answering:
                    task.cancel()
            if answer.done() and not answer.cancelled():
                answer.exception()

    async def notify(self, method: str, params: Params) -> None:
        """Implement `Transport.notify`."""
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def listen(self, client: CallClient, opened: asyncio.Event) -> None:
        """Implement `Transport.listen`: the standard output, until the server ends."""
        self._clients[_LISTENER] = client
        opened.set()
        try:
            await asyncio.wait({self._reading})
        finally:
            self._clients.pop(_LISTENER, None)
        raise self._lost or ServerLostError("the server ended")

    def adopt(self, revision: str, *, modern: bool) -> None:
        """Implement `Transport.adopt`: every message says it itself."""

    async def close(self) -> None:
        """Stop reading, and fail the requests under way."""
        for task in (self._reading, *self._answering):
            task.cancel()
        await asyncio.wait([self._reading, *self._answering])
        self._fail(ServerLostError("the server was stopped"))

    async def _send(self, message: dict[str, Any]) -> None:
        # A server that does not read blocks here; the caller's deadline ends the wait.
        async with self._writing:
            try:
                self._process.stdin.write(dump(message) + b"\n")
                await self._process.stdin.drain()
            except (ConnectionError, RuntimeError):
                raise self._lost or ServerLostError("the server closed its standard input") from None

    def _request_stop(self, number: int) -> None:
        """Ask the server to stop a request. Never waits: it may read nothing."""
        message = {"jsonrpc": "2.0", "method": _CANCELED, "params": {"requestId": number, "reason": "canceled"}}
        with suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(dump(message) + b"\n")

    async def _read(self) -> None:
        try:
            async for line in read_lines(self._chunks(), self._max_bytes):
                if line.strip():
                    await self._take(line)
            self._fail(ServerLostError("the server ended"))
        except (ServerLostError, AnswerTooLargeError) as error:
            self._fail(error)
        except ConnectionError:
            self._fail(ServerLostError("the server ended"))

    async def _chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._process.stdout.read(_CHUNK_BYTES):
            yield chunk

    async def _take(self, line: bytes) -> None:
        message = await self._share.run_if_large(len(line), partial(self._parse, line))
        if message.method is None:
            self._answer(message)
        elif message.id is not None:
            await self._take_request(message)
        elif message.method == _LIST_CHANGED:
            self.list_changed.set()
        elif message.method == _PROGRESS:
            self._report_progress(message.fields.get("params"))
        elif (client := self._client()) is not None:
            hand_over(client, message.method, message.fields.get("params"))

    def _parse(self, line: bytes) -> Message:
        return read_message(self._secrets.remove_from(line), self._max_bytes)

    def _answer(self, message: Message) -> None:
        answer = self._pending.get(message.id) if type(message.id) is int else None
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _client(self) -> CallClient | None:
        """Return the client of the call under way: a confined server serves one at a time."""
        return next(reversed(self._clients.values()), None)

    async def _take_request(self, message: Message) -> None:
        """Answer a request of the server: at once what this client knows itself, later what its caller is asked."""
        client = self._client() if len(self._answering) < _MAX_QUESTIONS else None
        if message.method == "ping" or client is None:
            await self._ask(None, message)
            return
        task = asyncio.create_task(self._ask(client, message), name="mcp-question")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _ask(self, client: CallClient | None, message: Message) -> None:
        answer = await answer_to(client, message.method, message.fields.get("params"))
        with suppress(ServerLostError):
            await self._send({"jsonrpc": "2.0", "id": message.id, **answer})

    def _report_progress(self, params: Any) -> None:
        token = params.get("progressToken") if isinstance(params, dict) else None
        client = self._clients.get(token) if type(token) is int else None
        if client is not None:
            client.progress(params)

    def _fail(self, error: Exception) -> None:
        self._lost = self._lost or error
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(self._lost)


class ConfinedServer:
    """A server in its sandbox, from its start to its end. It serves one call at a time."""

    def __init__(
        self,
        process: SandboxedProcess,
        share: WorkShare,
        max_bytes: int,
        gate: EgressListener | None = None,
        secrets: ServerSecrets = NO_SECRETS,
    ) -> None:
        self.calls = 0
        self.gate = gate
        self.transport = StdioTransport(process, share, max_bytes, secrets)
        self.session = McpSession(self.transport, share)
        self._process = process
        self._ended = asyncio.create_task(process.wait(), name="mcp-server-ended")

    @property
    def ended(self) -> asyncio.Task[ExitReport]:
        """The task that completes when the process has ended."""
        return self._ended

    async def open(self) -> None:
        """Wait until the server has listed its tools. Raises like a request."""
        await self.session.open()
        await self.session.list_tools()

    async def refresh(self) -> None:
        """List the tools again if the server said that they changed."""
        if self.transport.list_changed.is_set():
            self.transport.list_changed.clear()
            await self.session.list_tools()

    async def terminate(self) -> None:
        """Ask the process to end."""
        await self._process.terminate()

    async def end(self) -> ExitReport:
        """Kill the process and its children, close its egress gate and return how it ended."""
        report = await self._process.kill()
        await self.transport.close()
        if self.gate is not None:
            await self.gate.close()
        await self._ended
        return report
