"""Runs the methods of gRPC servers: one message in, one message or a bounded stream of them out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import Descriptor

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.runtime.tasks import BackgroundTasks
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.cancelable import run_cancelable
from services.executor.adapters.runners.entry_point_resolver import sandbox_label
from services.executor.adapters.runners.upstreams.entry_point import EntryPoint, UpstreamLookup, declared_forecast
from services.executor.adapters.runners.upstreams.guarded_call import CallGuard
from services.executor.adapters.runners.worker.answer import log_failure
from services.executor.adapters.secrets.binding import bind_metadata, reject_secrets
from services.executor.adapters.upstreams.directory import UpstreamConfig, UpstreamDirectory
from services.executor.adapters.upstreams.grpc.codec import decode_answers, encode_request
from services.executor.adapters.upstreams.grpc.methods import Method
from services.executor.adapters.upstreams.grpc.server import GrpcServer
from services.executor.adapters.upstreams.grpc.statuses import error_of
from services.executor.adapters.upstreams.monitor import FAILURES, failure_reason
from services.executor.adapters.upstreams.servers import Servers
from services.executor.domain import errors
from services.executor.domain.ports import SecretStore
from services.executor.domain.resilience.circuit import Circuits
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.run_channel import ProgressReport
from services.executor.domain.scheduling.heavy_work import HeavyWork, WorkShare
from services.executor.domain.tool import Tool, VersionIdentity

_MAX_SERVERS = 512
_MAX_MESSAGES, _MAX_STREAM_BYTES = 10_000, 4 * 1024 * 1024
# What is left of a call's time to answer its caller, as a share and at most.
_MARGIN, _MOST_MARGIN = 0.05, 0.1


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of a method, ready to be sent."""

    tool: Tool
    work: RunRequest
    method: Method
    channel: grpc.aio.Channel
    request: bytes
    metadata: tuple[tuple[str, str], ...]
    secrets: tuple[str, ...]
    hidden: tuple[bytes, ...]
    """The values of the secrets."""
    origin: str
    limit: int
    share: WorkShare


class GrpcRunner:
    """Checks the definition of a method, converts messages, and passes deadline and cancellation on. Sends once."""

    def __init__(
        self,
        directory: UpstreamDirectory,
        servers: Servers,
        secrets: SecretStore,
        circuits: Circuits,
        heavy_work: HeavyWork,
        log: Log,
        request_check: Callable[[str], None],
        *,
        output_bytes: int,
    ) -> None:
        self._lookup = UpstreamLookup(directory, "grpc")
        self._open, self._secrets, self._circuits = servers, secrets, circuits
        self._heavy_work, self._log, self._request_check = heavy_work, log, request_check
        self._limit = min(output_bytes, _MAX_STREAM_BYTES)
        self._servers: BoundedCache[str, tuple[str, GrpcServer]] = BoundedCache(_MAX_SERVERS)
        self._closing = BackgroundTasks(log, "connections not closed cleanly")
        directory.listen(self._forget)

    def sandbox_for(self, tool: Tool) -> str | None:
        """Return the place of the call; None if the upstream is not known here."""
        upstream = self._lookup.find(tool)
        return None if upstream is None else sandbox_label("remote/grpc", "grpc", upstream.endpoint.grpc.address)

    def missing_for(self, tool: Tool) -> str:
        """Return why the tool cannot run here."""
        return self._lookup.missing_for(tool)

    def runs_inline(self, tool: Tool) -> bool:
        """Return False: a server may take any time."""
        return False

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Call the method. Raises EXTERNAL_UNAVAILABLE before the call if the server does not answer."""
        upstream, entry_point = self._lookup.require(tool)
        if work.preview:
            return declared_forecast(tool, work)
        call = await self._prepare(upstream, entry_point, tool, work)
        seconds = work.begin()
        return await run_cancelable(self._send_guarded(call, seconds), work)

    async def close(self) -> None:
        """Close the connections."""
        for _, server in self._servers.values():
            self._closing.spawn(server.close())
        await self._closing.drain()

    async def _prepare(self, upstream: UpstreamConfig, entry_point: EntryPoint, tool: Tool, work: RunRequest) -> _Call:
        server = self._server(upstream)
        try:
            description, channel = await server.recent_description(), await server.channel()
        except FAILURES as error:
            self._request_check(upstream.upstream_id)
            reason = failure_reason(error)
            raise MeshError(
                Reason.EXTERNAL_UNAVAILABLE,
                message=f"the upstream {upstream.upstream_id} is not available: {reason}",
                metadata={"upstream": upstream.upstream_id, "effect": "none"},
            ) from None
        if description.digests.get(entry_point.tool) != entry_point.definition:
            self._request_check(upstream.upstream_id)
            why = "its definition changed upstream"
            raise errors.tool_unavailable(VersionIdentity(tool.name, tool.digest), "quarantined", why)
        method = description.methods[entry_point.tool]
        share, size = self._heavy_work.share_of(work), len(dump(work.arguments))
        request = await share.run_if_large(size, lambda: encode_request(method.descriptor.input_type, work.arguments))
        host, namespace = upstream.endpoint.grpc.address.rpartition(":")[0], tool.qualified.rpartition(".")[0]
        secrets = await bind_metadata(upstream.endpoint.grpc.secrets, namespace, host, work.tenant, self._secrets)
        metadata = tuple((use.key, use.prefix + secret.value) for use, secret in secrets)
        names, hidden = (
            tuple(secret.name for _, secret in secrets),
            tuple(secret.value.encode() for _, secret in secrets),
        )
        origin, limit = upstream.endpoint.grpc.address, min(self._limit, tool.max_result_bytes)
        return _Call(tool, work, method, channel, request, metadata, names, hidden, origin, limit, share)

    async def _send_guarded(self, call: _Call, seconds: float) -> RunResult:
        """Send the call if the circuit of its server lets it pass."""
        guard = CallGuard(self._circuits, call.tool, call.work, call.origin)
        send = partial(self._send_mapping_errors, call, seconds)
        return RunResult(await guard.run(send, fair=guard.is_fair(seconds)))

    async def _send_mapping_errors(self, call: _Call, seconds: float) -> Any:
        try:
            return await _send(call, seconds - min(seconds * _MARGIN, _MOST_MARGIN))
        except grpc.aio.AioRpcError as failure:
            error = error_of(failure, call.origin, call.secrets, call.limit)
            log_failure(self._log, call.tool, call.work, error, failure.details() or "")
            if error.reason is Reason.CREDENTIAL_EXPIRED:
                await reject_secrets(self._secrets, call.secrets, call.work.tenant)
            raise error from None

    def _server(self, upstream: UpstreamConfig) -> GrpcServer:
        known = self._servers.get(upstream.upstream_id)
        if known is not None and known[0] == upstream.endpoint_digest:
            return known[1]
        self._drop(upstream.upstream_id)
        if len(self._servers) >= _MAX_SERVERS:
            self._drop(next(iter(self._servers)))
        return self._servers.put(upstream.upstream_id, (upstream.endpoint_digest, self._open.grpc_server(upstream)))[1]

    def _forget(self, upstream_id: str, _: UpstreamConfig | None) -> None:
        """Forget the server of an upstream that changed or is gone."""
        self._drop(upstream_id)

    def _drop(self, upstream_id: str) -> None:
        known = self._servers.pop(upstream_id, None)
        if known is not None:
            self._closing.spawn(known[1].close())


async def _send(call: _Call, seconds: float) -> Any:
    """Return the answer of a call as JSON. When canceled, so is the call on the server."""
    path, answer = f"/{call.method.name}", call.method.descriptor.output_type
    if not call.method.descriptor.server_streaming:
        unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = call.channel.unary_unary(path)
        content = await unary(call.request, timeout=seconds, metadata=call.metadata)
        return await call.share.run_if_large(len(content), lambda: _decode([content], call, answer)[0])
    streaming: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = call.channel.unary_stream(path)
    stream = streaming(call.request, timeout=seconds, metadata=call.metadata)
    try:
        contents = await _read_stream(stream, call)
    finally:
        stream.cancel()
    size = sum(map(len, contents))
    return {"messages": await call.share.run_if_large(size, lambda: _decode(contents, call, answer))}


async def _read_stream(stream: AsyncIterable[bytes], call: _Call) -> list[bytes]:
    contents: list[bytes] = []
    size = 0
    async for content in stream:
        contents.append(content)
        size += len(content)
        if size > call.limit or len(contents) > _MAX_MESSAGES:
            raise errors.result_too_large(size, call.limit)
        if call.work.channel is not None:
            call.work.channel.progress(ProgressReport(line_count=len(contents), bytes_read=size))
        # A server that sends without pause leaves the event loop to others.
        await asyncio.sleep(0)
    return contents


def _decode(contents: list[bytes], call: _Call, answer: Descriptor) -> list[dict[str, Any]]:
    return decode_answers(answer, [_without(content, call.hidden) for content in contents], call.limit)


def _without(content: bytes, hidden: tuple[bytes, ...]) -> bytes:
    """Return a message without the credentials of the call, which a service may repeat. All lengths stay."""
    for value in hidden:
        content = content.replace(value, b"*" * len(value))
    return content
