"""Keeps a connection to every upstream, and reports to the registry what it offers and whether it answers."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress

import grpc
import grpc.aio
from toolmesh.registry.v1 import upstream_service_pb2 as pb
from toolmesh.registry.v1 import upstream_service_pb2_grpc as rpc

from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.backoff import Backoff
from libs.common.telemetry.log import Log
from services.executor.adapters.telemetry.upstream_metrics import SeenState, show_states
from services.executor.adapters.upstreams.directory import UpstreamConfig, UpstreamDirectory
from services.executor.adapters.upstreams.mcp.http import HttpServer, SessionExpiredError
from services.executor.adapters.upstreams.mcp.session import McpSession
from services.executor.adapters.upstreams.mcp.stdio import ConfinedServer
from services.executor.adapters.upstreams.mcp.transport import (
    AnswerTooLargeError,
    RateLimitedError,
    RpcError,
    ServerLostError,
    UnreadableAnswerError,
)
from services.executor.adapters.upstreams.servers import Servers
from services.executor.domain.resilience.circuit import CircuitConfig, Circuits, CircuitState, Transition
from services.executor.domain.scheduling.heavy_work import Principal

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0
# A server is back soon after it answers again. Starting a program, or reading a document, costs more than a connection.
_LONGEST_PAUSES = {"mcp_http": 5.0, "grpc": 5.0, "websocket": 5.0}
# A first report may register a thousand tools.
_REPORT_SECONDS = 300.0
_ANSWER_SECONDS = 30.0
_POLL_SECONDS = 30.0
# A server that limits the rate of requests is asked again after this time, whatever it says.
_LONGEST_LIMIT = 3600.0
# A large document is read by a process of its own.
_DISCOVERY_SECONDS = 120.0
FAILURES = (ServerLostError, RpcError, AnswerTooLargeError, UnreadableAnswerError, SessionExpiredError, TimeoutError)


def failure_reason(error: BaseException) -> str:
    """Return one sentence why a server could not be asked. What the server wrote is not part of it."""
    if isinstance(error, ServerLostError):
        return str(error)
    if isinstance(error, RpcError):
        return f"the server refused with the JSON-RPC error {error.code}"
    if isinstance(error, AnswerTooLargeError):
        return f"the server sent a message of more than {error.limit} bytes"
    if isinstance(error, UnreadableAnswerError):
        return "the server sent an answer that is not strict JSON"
    if isinstance(error, MeshError):
        return error.message or error.reason.name
    return "the server did not answer in time"


def _owner(config: UpstreamConfig) -> Principal:
    """Return the owner of the discovery of an upstream, which is done for no caller."""
    return Principal("", f"upstream {config.upstream_id}")


def _limit(error: BaseException) -> float:
    """Return for how long a server that refused is not asked again."""
    return min(error.retry_after or 0.0, _LONGEST_LIMIT) if isinstance(error, RateLimitedError) else 0.0


def _asks_server(config: UpstreamConfig) -> bool:
    """Return whether discovery asks the server that calls go to. A document says nothing about its API."""
    return config.endpoint.WhichOneof("kind") != "openapi"


class UpstreamMonitor:
    """Runs one task for each upstream; a refresh restarts it. Once a server answers again, calls try it at once."""

    def __init__(
        self,
        directory: UpstreamDirectory,
        servers: Servers,
        circuits: Circuits,
        channel: grpc.aio.Channel,
        instance: str,
        log: Log,
    ) -> None:
        self._stub = rpc.UpstreamServiceStub(channel)
        self._servers, self._circuits, self._instance, self._log = servers, circuits, instance, log
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._due: dict[str, asyncio.Event] = {}
        self._probed: set[str] = set()
        self._seen: dict[str, SeenState] = {}
        show_states(())
        directory.listen(self._follow)

    async def stop(self) -> None:
        """End every connection."""
        for upstream_id in list(self._tasks):
            self._end(upstream_id)
        if self._ending:
            await asyncio.wait(self._ending)

    def request_check(self, upstream_id: str) -> None:
        """Ask for a discovery soon, because a call met another definition than the registry knows."""
        if (due := self._due.get(upstream_id)) is not None:
            due.set()

    def follow_circuit(self, name: str, transition: Transition) -> None:
        """Ask for a check of the server whose circuit opened: only one that was seen silent is seen to come back."""
        upstream_id = name.partition("/")[0]
        if transition.after is CircuitState.OPEN and upstream_id in self._probed:
            self.request_check(upstream_id)

    def _follow(self, upstream_id: str, config: UpstreamConfig | None) -> None:
        self._end(upstream_id)
        self._probed.discard(upstream_id)
        self._note(upstream_id, None if config is None else SeenState.PENDING)
        if config is not None:
            if _asks_server(config):
                self._probed.add(upstream_id)
            self._due[upstream_id] = asyncio.Event()
            self._tasks[upstream_id] = asyncio.create_task(
                self._run(config, self._due[upstream_id]), name=f"upstream {upstream_id}"
            )

    def _note(self, upstream_id: str, state: SeenState | None) -> None:
        """Show what was seen of an upstream; None if it is gone."""
        if state is None:
            self._seen.pop(upstream_id, None)
        else:
            self._seen[upstream_id] = state
        show_states(self._seen.values())

    def _end(self, upstream_id: str) -> None:
        task = self._tasks.pop(upstream_id, None)
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _run(self, config: UpstreamConfig, due: asyncio.Event) -> None:
        kind = config.endpoint.WhichOneof("kind")
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSES.get(kind or "", _LONGEST_PAUSE))
        while True:
            limited_for = 0.0
            try:
                if kind == "mcp_stdio":
                    await self._watch_confined(config, due, backoff)
                elif kind == "mcp_http":
                    await self._watch_remote(config, due, backoff)
                else:
                    await self._watch_source(config, due, backoff)
            except (*FAILURES, MeshError) as error:
                reason, limited_for = failure_reason(error)[:500], _limit(error)
                self._log.warning("upstream does not answer", upstream=config.upstream_id, why=reason)
                if not await self._report(config, failure=pb.DiscoveryFailure(reason=reason)):
                    return
            except Exception as error:
                self._log.error("upstream cannot be watched", upstream=config.upstream_id, cause=error)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(limited_for, backoff.next_pause())):
                    await due.wait()
            due.clear()

    async def _watch_confined(self, config: UpstreamConfig, due: asyncio.Event, backoff: Backoff) -> None:
        """Report what a server of our own offers, whenever that may have changed, until it ends."""
        async with asyncio.timeout(_ANSWER_SECONDS):
            owner = _owner(config)
            server = await self._servers.start(config, owner, await self._servers.read_secrets(config, owner))
        try:
            await self._half_open(config)
            while await self._report_session(config, server.session):
                backoff.reset()
                await _next_check(server, due)
                if server.ended.done():
                    raise ServerLostError("the server ended")
                async with asyncio.timeout(_ANSWER_SECONDS):
                    await server.session.list_tools()
        finally:
            await asyncio.shield(server.end())

    async def _watch_remote(self, config: UpstreamConfig, due: asyncio.Event, backoff: Backoff) -> None:
        server: HttpServer = self._servers.connect(config, _owner(config))
        try:
            server.transport.secrets = await self._servers.read_secrets(config, _owner(config))
            async with asyncio.timeout(_ANSWER_SECONDS):
                await server.open()
            await self._half_open(config)
            while await self._report_session(config, server.session):
                backoff.reset()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS):
                        await due.wait()
                due.clear()
                await self._list_again(config, server)
        finally:
            await asyncio.shield(server.close())

    async def _list_again(self, config: UpstreamConfig, server: HttpServer) -> None:
        """List the tools of a server. One that limits the rate is there, and is asked again when it says."""
        while True:
            server.transport.secrets = await self._servers.read_secrets(config, _owner(config))
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    await server.list_tools()
            except RateLimitedError as error:
                await asyncio.sleep(max(_limit(error), _POLL_SECONDS))
            else:
                return

    async def _watch_source(self, config: UpstreamConfig, due: asyncio.Event, backoff: Backoff) -> None:
        """Report what a document or a server says about itself, in full only when that changed."""
        source, reported = self._servers.open_source(config), b""
        try:
            while True:
                async with asyncio.timeout(_DISCOVERY_SECONDS):
                    discovery = await source.discover()
                if not reported and _asks_server(config):
                    await self._half_open(config)
                digest = hashlib.sha256(discovery.SerializeToString(deterministic=True)).digest()
                if digest == reported:
                    known = await self._report(config, unchanged=pb.Unchanged())
                else:
                    known = await self._report(config, discovery=discovery)
                if not known:
                    return
                reported = digest
                backoff.reset()
                with suppress(TimeoutError):
                    async with asyncio.timeout(source.poll_seconds):
                        await due.wait()
                due.clear()
        finally:
            await asyncio.shield(source.close())

    async def _half_open(self, config: UpstreamConfig) -> None:
        """Let calls try the server again. Those of a confined one have circuits of their own."""
        private = config.endpoint.WhichOneof("kind") == "mcp_stdio"
        await self._circuits.half_open(config.upstream_id, CircuitConfig(private=private))

    async def _report_session(self, config: UpstreamConfig, session: McpSession) -> bool:
        discovery = pb.Discovery(
            server_name=session.server_name,
            server_version=session.server_version,
            protocol_version=session.protocol_version,
            tools=[
                pb.DiscoveredTool(native_name=each.name, definition=each.document)
                for each in session.definitions.values()
            ],
        )
        return await self._report(config, discovery=discovery)

    async def _report(
        self,
        config: UpstreamConfig,
        *,
        discovery: pb.Discovery | None = None,
        failure: pb.DiscoveryFailure | None = None,
        unchanged: pb.Unchanged | None = None,
    ) -> bool:
        """Report until the registry takes it; False if the upstream is gone."""
        self._note(config.upstream_id, SeenState.READY if failure is None else SeenState.UNAVAILABLE)
        request = pb.ReportUpstreamRequest(
            name=f"upstreams/{config.upstream_id}",
            instance=self._instance,
            generation=config.generation,
            discovery=discovery,
            failure=failure,
            unchanged=unchanged,
        )
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                await self._stub.ReportUpstream(request, timeout=_REPORT_SECONDS)
            except (grpc.aio.AioRpcError, MeshError) as error:
                refusal = from_rpc_error(error) if isinstance(error, grpc.aio.AioRpcError) else error
                if refusal.reason is Reason.NOT_FOUND:
                    return False
                self._log.warning("upstream not reported", upstream=config.upstream_id, reason=refusal.reason.name)
                await backoff.wait()
            else:
                return True


async def _next_check(server: ConfinedServer, due: asyncio.Event) -> None:
    """Wait until the tools may have changed: the server says so, ends, a call asks, or it is time."""
    waits = [asyncio.create_task(each.wait()) for each in (server.transport.list_changed, due)]
    try:
        await asyncio.wait({*waits, server.ended}, timeout=_POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    server.transport.list_changed.clear()
    due.clear()
