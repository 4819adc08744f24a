"""Runs the tools of MCP servers: confined ones in a process of the caller's own, remote ones over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from libs.common.errors import MeshError, Reason, Violation
from libs.common.json.jsonio import parse_object
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.entry_point_resolver import sandbox_label
from services.executor.adapters.runners.middleware import process_starts
from services.executor.adapters.runners.upstreams.entry_point import EntryPoint, UpstreamLookup, declared_forecast
from services.executor.adapters.runners.upstreams.guarded_call import CallGuard, party_of
from services.executor.adapters.runners.worker.answer import log_failure, printable
from services.executor.adapters.runners.worker.pool import WorkerKey, WorkerPool
from services.executor.adapters.sandbox.egress.proxy import refusal_error as egress_error
from services.executor.adapters.upstreams.directory import UpstreamConfig, UpstreamDirectory
from services.executor.adapters.upstreams.mcp.caller import CallerClient
from services.executor.adapters.upstreams.mcp.remote_sessions import RemoteSessions
from services.executor.adapters.upstreams.mcp.secrets import ServerSecrets
from services.executor.adapters.upstreams.mcp.server_time import ServerTime
from services.executor.adapters.upstreams.mcp.session import Definition, McpSession
from services.executor.adapters.upstreams.mcp.stdio import ConfinedServer
from services.executor.adapters.upstreams.mcp.transport import (
    AnswerTooLargeError,
    CallClient,
    CredentialRefusedError,
    RateLimitedError,
    RpcError,
    UnreadableAnswerError,
)
from services.executor.adapters.upstreams.monitor import FAILURES, failure_reason
from services.executor.adapters.upstreams.servers import Servers
from services.executor.domain import errors
from services.executor.domain.resilience.circuit import Circuits
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.scheduling.heavy_work import Principal
from services.executor.domain.tool import Tool, VersionIdentity

_MAX_TEXT = 500

_MISSING_CAPABILITY = -32021
# What a result says to a client of the protocol, not to the caller of a tool.
_PROTOCOL_MEMBERS = ("_meta", "resultType", "ttlMs", "cacheScope")

Send = Callable[[CallClient | None], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class _Call:
    """One call, for one caller."""

    upstream: UpstreamConfig
    entry_point: EntryPoint
    tool: Tool
    work: RunRequest
    caller: Principal
    secrets: ServerSecrets
    server_time: ServerTime

    def begin(self) -> None:
        """Start the time of the tool."""
        self.work.begin()
        self.server_time.begin()


class McpRunner:
    """Checks the definition on the connection that serves the call, and passes deadline and cancellation on."""

    def __init__(
        self,
        directory: UpstreamDirectory,
        servers: Servers,
        pool: WorkerPool[ConfinedServer],
        circuits: Circuits,
        log: Log,
        request_check: Callable[[str], None],
    ) -> None:
        self._lookup = UpstreamLookup(directory, "mcp_http", "mcp_stdio")
        self._servers, self._pool, self._circuits, self._log = servers, pool, circuits, log
        self._request_check = request_check
        self._remote = RemoteSessions(servers, log)
        directory.listen(self._forget)

    def sandbox_for(self, tool: Tool) -> str | None:
        """Return the sandbox of the server; None if the upstream is not known here."""
        upstream = self._lookup.find(tool)
        if upstream is None:
            return None
        if upstream.endpoint.WhichOneof("kind") == "mcp_http":
            host = urlsplit(upstream.endpoint.mcp_http.url).hostname or ""
            return sandbox_label("remote/http", "mcp", host)
        endpoint = upstream.endpoint.mcp_stdio
        code = f"{endpoint.package} {endpoint.lock_digest}" if endpoint.package else endpoint.command[0]
        return sandbox_label(self._servers.sandbox().name, "mcp", code)

    def missing_for(self, tool: Tool) -> str:
        """Return why the tool cannot run here."""
        return self._lookup.missing_for(tool)

    def runs_inline(self, tool: Tool) -> bool:
        """Return False: a server may take any time."""
        return False

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Call the tool. Raises EXTERNAL_UNAVAILABLE before the call if the server does not answer."""
        upstream, entry_point = self._lookup.require(tool)
        if work.preview:
            return declared_forecast(tool, work)
        caller, server_time = Principal(work.tenant, work.subject), ServerTime()
        secrets = await self._servers.read_secrets(upstream, caller)
        call = _Call(upstream, entry_point, tool, work, caller, secrets, server_time)
        if upstream.endpoint.WhichOneof("kind") == "mcp_stdio":
            # What happens to the processes of one caller says nothing about those of others.
            guard = CallGuard(self._circuits, tool, work, upstream.upstream_id, owner=party_of(work))
            send = partial(self._run_confined, call)
        else:
            guard = CallGuard(self._circuits, tool, work, _origin_of(upstream.endpoint.mcp_http.url))
            send = partial(self._run_remote, call, guard)
        return await guard.run(
            send, was_silent=lambda: guard.is_fair(server_time.seconds), server_seconds=lambda: server_time.seconds
        )

    async def close(self) -> None:
        """Close the connections to remote servers."""
        await self._remote.close()

    async def _run_confined(self, call: _Call) -> RunResult:
        server, begun = await self._borrow(call), False
        try:
            await server.refresh()
            definition = self._require_definition(server.session, call)
            call.begin()
            begun = True
            server.calls += 1
            result = await self._call(partial(server.session.call, definition, call.work.arguments), call)
            if server.gate is not None and (violation := egress_error(server.gate.take_refusals())):
                raise violation
            value = result_value(result, definition)
        except BaseException as error:
            if isinstance(error, MeshError) and error.reason is Reason.EXECUTION_FAILED:
                # The tool itself reported the failure, so its server is well.
                self._pool.give_back(server)
                raise
            await self._pool.discard(server)
            if isinstance(error, FAILURES) and not begun:
                raise self._unavailable(error, call.upstream) from None
            raise
        self._pool.give_back(server)
        return RunResult(value)

    async def _borrow(self, call: _Call) -> ConfinedServer:
        upstream, work = call.upstream, call.work
        # A server with a former value of a secret is not used again.
        code = f"{upstream.upstream_id} {upstream.endpoint_digest} {call.secrets.fingerprint}"
        key = WorkerKey(code, party_of(work), "mcp", work.subject)
        while True:
            try:
                start = partial(self._servers.start, upstream, call.caller, call.secrets)
                server = await self._pool.take(key, start)
            except FAILURES as error:
                raise self._unavailable(error, upstream) from None
            process_starts.labels("mcp", "warm" if server.calls else "cold").inc()
            if not server.ended.done():
                return server
            await self._pool.discard(server)

    async def _run_remote(self, call: _Call, guard: CallGuard) -> RunResult:
        upstream = call.upstream
        async with self._remote.use(upstream, call.caller) as server:
            server.transport.secrets = call.secrets
            try:
                await server.refresh()
            except CredentialRefusedError as error:
                raise errors.credential_refused(error.name, error.status) from None
            except RateLimitedError as error:
                raise errors.external_rate_limited(guard.service, error.retry_after) from None
            except FAILURES as error:
                raise self._unavailable(error, upstream) from None
            definition = self._require_definition(server.session, call)
            if (seconds := server.transport.take_limit()) is not None:
                raise errors.external_rate_limited(guard.service, seconds)
            call.begin()
            try:
                result = await self._call(partial(server.call, definition, call.work.arguments), call)
            except RateLimitedError as error:
                raise errors.external_rate_limited(guard.service, error.retry_after) from None
            finally:
                await guard.hold_back(server.transport.take_limit())
            if server.transport.list_changed.is_set():
                self._request_check(upstream.upstream_id)
            return RunResult(result_value(result, definition))

    def _require_definition(self, session: McpSession, call: _Call) -> Definition:
        """Return the definition on this connection. Raises TOOL_UNAVAILABLE if it is not the accepted one."""
        entry_point, tool = call.entry_point, call.tool
        definition = session.definitions.get(entry_point.tool)
        if definition is None or definition.digest != entry_point.definition:
            self._request_check(entry_point.upstream)
            why = "the upstream no longer offers the tool" if definition is None else "its definition changed upstream"
            raise errors.tool_unavailable(VersionIdentity(tool.name, tool.digest), "quarantined", why)
        return definition

    async def _call(self, send: Send, call: _Call) -> dict[str, Any]:
        """Return the result of a call under way. Raises MeshError."""
        channel, capabilities = call.work.channel, call.work.caller_capabilities
        client = None if channel is None else CallerClient(channel, capabilities, call.server_time)
        task: asyncio.Future[dict[str, Any]] = asyncio.ensure_future(send(client))
        try:
            if channel is not None:
                ends: set[asyncio.Future[Any]] = {task, channel.canceled}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if not task.done():
                    raise errors.canceled()
            return await task
        except RpcError as error:
            raise _refusal(error) from None
        except AnswerTooLargeError as error:
            raise errors.result_too_large(error.limit, error.limit) from None
        except UnreadableAnswerError:
            raise errors.result_invalid([Violation("", "json", "the result has no JSON form")]) from None
        except CredentialRefusedError as error:
            raise errors.credential_refused(error.name, error.status) from None
        except RateLimitedError:
            raise
        except FAILURES as error:
            lost = MeshError(Reason.TOOL_CRASHED, message=failure_reason(error))
            log_failure(self._log, call.tool, call.work, lost)
            raise lost from None
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    def _unavailable(self, error: BaseException, upstream: UpstreamConfig) -> MeshError:
        self._request_check(upstream.upstream_id)
        return MeshError(
            Reason.EXTERNAL_UNAVAILABLE,
            message=f"the upstream {upstream.upstream_id} is not available: {failure_reason(error)}",
            metadata={"upstream": upstream.upstream_id},
        )

    def _forget(self, upstream_id: str, _: UpstreamConfig | None) -> None:
        """Forget the sessions of an upstream that changed or is gone."""
        self._remote.forget(upstream_id)


def _origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def result_value(result: Mapping[str, Any], definition: Definition) -> Any:
    """Return the result of a tool: the structured content where the tool declares it, else all content.

    Raises EXECUTION_FAILED with the server's text if the tool failed.
    """
    if definition.method != "tools/call":
        return {name: value for name, value in result.items() if name not in _PROTOCOL_MEMBERS}
    content = result.get("content")
    parts = content if isinstance(content, list) else []
    if result.get("isError") is True:
        raise errors.execution_failed(_failure_text(parts))
    if "outputSchema" in parse_object(definition.document):
        if "structuredContent" not in result:
            raise errors.result_invalid([Violation("", "required", "the server sent no structured content")])
        return result["structuredContent"]
    return {"content": parts}


def _failure_text(parts: list[Any]) -> str:
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return printable(" ".join(texts) or "the tool failed")[:_MAX_TEXT]


def _refusal(error: RpcError) -> MeshError:
    """Return the failure of a call that the server refused. The code is for callers that speak its protocol."""
    metadata = {"jsonrpc_code": str(error.code)}
    missing = error.data.get("requiredCapabilities") if isinstance(error.data, dict) else None
    if error.code == _MISSING_CAPABILITY and isinstance(missing, dict):
        metadata["required_capabilities"] = ",".join(sorted(str(name) for name in missing))[:_MAX_TEXT]
    text = printable(f"the server refused the call: {error.message}")[:_MAX_TEXT]
    return errors.execution_failed(text, metadata)
