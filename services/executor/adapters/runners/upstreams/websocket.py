"""Runs the operations of WebSocket services: one message out, one or a bounded stream of them back. Sends once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from toolmesh.registry.v1 import upstream_pb2

from libs.common.errors import MeshError, Reason, Violation
from libs.common.ids import new_id
from libs.common.json.jsonio import parse, refuse_many_values
from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.secret_store.secret import Secret
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.cancelable import run_cancelable
from services.executor.adapters.runners.entry_point_resolver import sandbox_label
from services.executor.adapters.runners.upstreams.entry_point import UpstreamLookup, declared_forecast
from services.executor.adapters.runners.upstreams.guarded_call import CallGuard
from services.executor.adapters.runners.worker.answer import log_failure
from services.executor.adapters.runners.worker.frames import MAX_VALUES
from services.executor.adapters.secrets.binding import bind_metadata, reject_secrets
from services.executor.adapters.secrets.remove_values import remove_values
from services.executor.adapters.upstreams.directory import UpstreamConfig, UpstreamDirectory
from services.executor.adapters.upstreams.mcp.transport import ServerLostError
from services.executor.adapters.upstreams.servers import Servers
from services.executor.adapters.upstreams.websocket.operations import MessageRole, Operation
from services.executor.adapters.upstreams.websocket.service import WebSocketService
from services.executor.adapters.upstreams.websocket.statuses import error_of_status
from services.executor.domain import errors
from services.executor.domain.ports import SecretStore
from services.executor.domain.resilience.circuit import Circuits
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.run_channel import ProgressReport
from services.executor.domain.scheduling.heavy_work import HeavyWork, WorkShare
from services.executor.domain.tool import Tool, VersionIdentity

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_MAX_SERVICES = 512
_MAX_MESSAGES, _MAX_STREAM_BYTES, _MAX_SENT_BYTES = 10_000, 4 << 20, 4 << 20
# What is left of a call's time to answer its caller, as a share and at most.
_MARGIN, _MOST_MARGIN = 0.05, 0.1


@dataclass(frozen=True, slots=True)
class _Call:
    """One call, ready to be sent."""

    tool: Tool
    work: RunRequest
    service: WebSocketService
    operation: Operation
    message: bytes
    call_id: str
    secrets: list[tuple[upstream_pb2.MetadataSecret, Secret]]
    limit: int
    share: WorkShare

    @property
    def origin(self) -> str:
        return self.service.connector.origin


class WebSocketRunner:
    """Checks the definition of an operation, and passes deadline and cancellation on."""

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
        self._lookup = UpstreamLookup(directory, "websocket")
        self._open, self._secrets, self._circuits = servers, secrets, circuits
        self._heavy_work, self._log, self._request_check = heavy_work, log, request_check
        self._limit = min(output_bytes, _MAX_STREAM_BYTES)
        self._services: BoundedCache[str, tuple[str, WebSocketService]] = BoundedCache(_MAX_SERVICES)

    def sandbox_for(self, tool: Tool) -> str | None:
        """Return the place of the call; None if the upstream is not known here."""
        upstream = self._lookup.find(tool)
        return None if upstream is None else sandbox_label("remote/ws", "ws", self._service(upstream).connector.origin)

    def missing_for(self, tool: Tool) -> str:
        """Return why the tool cannot run here."""
        return self._lookup.missing_for(tool)

    def runs_inline(self, tool: Tool) -> bool:
        """Return False: a service may take any time."""
        return False

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Call the operation."""
        upstream, entry_point = self._lookup.require(tool)
        if work.preview:
            return declared_forecast(tool, work)
        service = self._service(upstream)
        operation = service.operations.get(entry_point.tool)
        if operation is None or operation.digest != entry_point.definition:
            self._request_check(upstream.upstream_id)
            why = "its definition changed upstream"
            raise errors.tool_unavailable(VersionIdentity(tool.name, tool.digest), "quarantined", why)
        call = await self._prepare(upstream, service, operation, tool, work)
        seconds = work.begin()
        guard = CallGuard(self._circuits, tool, work, call.origin)
        guarded = guard.run(partial(self._send, call, seconds), fair=guard.is_fair(seconds))
        return RunResult(await run_cancelable(guarded, work))

    def _service(self, upstream: UpstreamConfig) -> WebSocketService:
        known = self._services.get(upstream.upstream_id)
        if known is None or known[0] != upstream.endpoint_digest:
            made = (upstream.endpoint_digest, self._open.websocket_service(upstream))
            known = self._services.put(upstream.upstream_id, made)
        return known[1]

    async def _prepare(
        self, upstream: UpstreamConfig, service: WebSocketService, operation: Operation, tool: Tool, work: RunRequest
    ) -> _Call:
        call_id, namespace = new_id(), tool.qualified.rpartition(".")[0]
        message = operation.message(work.arguments, call_id)
        if len(message) > _MAX_SENT_BYTES:
            too_large = Violation("", "websocket.message", f"make a message of more than {_MAX_SENT_BYTES} bytes")
            raise errors.arguments_invalid([too_large])
        uses = upstream.endpoint.websocket.secrets
        secrets = await bind_metadata(uses, namespace, service.connector.host, work.tenant, self._secrets)
        limit, share = min(self._limit, tool.max_result_bytes), self._heavy_work.share_of(work)
        return _Call(tool, work, service, operation, message, call_id, secrets, limit, share)

    async def _send(self, call: _Call, seconds: float) -> Any:
        try:
            async with asyncio.timeout(seconds - min(seconds * _MARGIN, _MOST_MARGIN)):
                return await self._exchange(call)
        except TimeoutError:
            raise errors.external_timeout(call.origin, "unknown") from None
        except ServerLostError:
            raise errors.external_unavailable(call.origin, "unreachable", "none") from None

    async def _exchange(self, call: _Call) -> Any:
        """Open a connection, send the message and read the answer. When canceled, the connection is closed at once."""
        from websockets.exceptions import ConnectionClosed, InvalidStatus, PayloadTooBig

        names = [secret.name for _, secret in call.secrets]
        try:
            connection = await call.service.connector.open(
                {use.key: use.prefix + secret.value for use, secret in call.secrets}
            )
        except InvalidStatus as refusal:
            error = error_of_status(call.origin, refusal.response, names)
            log_failure(self._log, call.tool, call.work, error, "")
            if error.reason is Reason.CREDENTIAL_EXPIRED:
                await reject_secrets(self._secrets, names, call.work.tenant)
            raise error from None
        try:
            await connection.send(call.message.decode())
            return await self._read(call, connection)
        except ConnectionClosed as closed:
            if isinstance(closed.__cause__, PayloadTooBig) or (closed.sent is not None and closed.sent.code == 1009):
                raise errors.result_too_large(call.limit + 1, call.limit) from None
            raise errors.external_unavailable(call.origin, "broken_off", "unknown") from None
        finally:
            # A closing handshake would wait for the service.
            connection.transport.abort()

    async def _read(self, call: _Call, connection: ClientConnection) -> Any:
        from websockets.exceptions import ConnectionClosedOK

        answers: list[Any] = []
        size = count = 0
        while True:
            try:
                text = await connection.recv(decode=False)
            except ConnectionClosedOK:
                if call.operation.stream:
                    return {"messages": answers}
                raise
            size, count = size + len(text), count + 1
            if size > call.limit or count > _MAX_MESSAGES:
                raise errors.result_too_large(size, call.limit)
            message = await call.share.run_if_large(len(text), lambda text=text: _decode(call, bytes(text)))  # type: ignore[misc]
            role = call.operation.role_of(message, call.call_id)
            if role is MessageRole.ERROR:
                raise self._refused(call, text)
            if role is MessageRole.END:
                return {"messages": answers} if call.operation.stream else message
            if role is MessageRole.ANSWER and not call.operation.stream:
                return message
            if role is MessageRole.ANSWER:
                answers.append(message)
                if call.work.channel is not None:
                    call.work.channel.progress(ProgressReport(line_count=len(answers), bytes_read=size))
            # A service that sends without pause leaves the event loop to others.
            await asyncio.sleep(0)

    def _refused(self, call: _Call, text: bytes) -> MeshError:
        message = "The service answered with an error; the log of the tool has its text."
        error = MeshError(Reason.EXECUTION_FAILED, message=message, metadata={"service": call.origin})
        log_failure(self._log, call.tool, call.work, error, _clean(call, text).decode(errors="replace")[:2000])
        return error


def _clean(call: _Call, text: bytes) -> bytes:
    """Return a message without the credentials of the call, which a service may repeat."""
    return remove_values(text, [secret.value for _, secret in call.secrets])


def _decode(call: _Call, text: bytes) -> Any:
    """Parse a message. Raises RESULT_TOO_LARGE and RESULT_INVALID."""
    try:
        refuse_many_values(text, MAX_VALUES)
    except MeshError:
        raise errors.result_too_large(len(text), call.limit) from None
    try:
        return parse(_clean(call, text), max_bytes=call.limit)
    except MeshError:
        raise errors.external_answer_invalid("a message of the service is not strict JSON") from None
