"""The client for asyncio: the surface of `client.py`, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import grpc
from toolmesh.audit.v1 import audit_record_pb2, audit_service_pb2, checkpoint_pb2
from toolmesh.audit.v1.audit_service_pb2_grpc import AuditServiceStub
from toolmesh.authz.v1 import token_service_pb2
from toolmesh.authz.v1.token_service_pb2_grpc import TokenServiceStub
from toolmesh.executor.v1 import executor_service_pb2
from toolmesh.executor.v1.executor_service_pb2_grpc import ExecutorServiceStub
from toolmesh.registry.v1 import registry_service_pb2, tool_version_pb2
from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceStub

from toolmesh_sdk._wire import requests
from toolmesh_sdk._wire.connection import Tls
from toolmesh_sdk._wire.envelope import Stored
from toolmesh_sdk._wire.fetch import MAX_FETCHED_BYTES, Fetch
from toolmesh_sdk._wire.payload import parse
from toolmesh_sdk._wire.requests import RecordFilters
from toolmesh_sdk._wire.retry import RetryPolicy
from toolmesh_sdk._wire.status import error_from_rpc
from toolmesh_sdk._wire.trace import new_traceparent, trace_id_of
from toolmesh_sdk._wire.transport import DEFAULT_TIMEOUT, AsyncTransport, Options, Token, failing_when_closed
from toolmesh_sdk._wire.watch import Watch, log_size
from toolmesh_sdk.group import GroupCall, Outcome, group_request, may_repeat, outcomes_of
from toolmesh_sdk.keys import key_of_call
from toolmesh_sdk.preview import Preview, preview_of
from toolmesh_sdk.result import Result, result_of
from toolmesh_sdk.token_request import Bounds, part_of

if TYPE_CHECKING:  # the generated async stubs exist for type checkers only
    from toolmesh.audit.v1.audit_service_pb2_grpc import AuditServiceAsyncStub
    from toolmesh.authz.v1.token_service_pb2_grpc import TokenServiceAsyncStub
    from toolmesh.executor.v1.executor_service_pb2_grpc import ExecutorServiceAsyncStub
    from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceAsyncStub

    from toolmesh_sdk._wire.proof import ProofKey


class AsyncClient:
    """Calls tools and reads what the mesh knows, on one event loop. Close it, or use it as an async context manager.

    The parameters are those of `Client`. Cancelling a task cancels its call.
    """

    def __init__(
        self,
        target: str,
        *,
        token: Token = "",
        tls: Tls | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        retry: RetryPolicy | None = None,
        traceparent: Callable[[], str] = new_traceparent,
        proof_key: ProofKey | None = None,
        key_secret: str | bytes = b"",
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        options = Options(
            token=token,
            timeout=timeout,
            retry=retry or RetryPolicy(),
            traceparent=traceparent,
            proof_key=proof_key,
            key_secret=key_secret,
        )
        self._transport = AsyncTransport(target, tls, options, pause)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls under way fail."""
        await self._transport.close()

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        version: str = "",
        idempotency_key: str | None = None,
        step: str | None = None,
        session_id: str = "",
        task_id: str = "",
        native_call_id: str = "",
        tool_digest: str = "",
        priority: int = 0,
        preview_token: str = "",
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> Result:
        """Call a tool. With an idempotency key the effect happens once, however often the call is repeated.

        Instead of a key, name the `step` of the session that the call is: its key is derived from session, tool, step and arguments
        under the client's `key_secret`, so that a process that takes the step again after a restart carries the same key.

        Every retry carries the same key. Without one, a failure of the transport is not retried: the tool may have run.

        `priority` is how urgent the call is beside others that wait for the same place, 1 to 10; 0 means the tool's own.
        `preview_token` comes from a `preview` of this very call, where policy or an irreversible tool demands one.
        """
        secret = self._transport.options.key_secret
        key = key_of_call(secret, session_id, tool, arguments, step=step, given=idempotency_key)
        request = requests.invoke(
            *(tool, arguments, version, key, session_id, task_id, native_call_id, tool_digest),
            priority=priority,
            preview_token=preview_token,
        )
        response = await self._transport.unary(
            self._executor.Invoke, request, timeout, repeatable=bool(key), traceparent=traceparent
        )
        return result_of(response.result)

    async def preview(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        version: str = "",
        session_id: str = "",
        task_id: str = "",
        native_call_id: str = "",
        tool_digest: str = "",
        priority: int = 0,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> Preview:
        """Say what a call would do without doing it; its token lets the call itself pass where a preview is demanded.

        Fails like the call would, and with PreconditionFailedError where the tool cannot be previewed.
        """
        call = requests.invoke(
            *(tool, arguments, version, "", session_id, task_id, native_call_id, tool_digest), priority=priority
        )
        request = executor_service_pb2.PreviewInvocationRequest(request=call)
        response = await self._transport.unary(
            self._executor.PreviewInvocation, request, timeout, repeatable=True, traceparent=traceparent
        )
        return preview_of(response)

    async def call_group(
        self, calls: Iterable[GroupCall], *, timeout: float | None = None, traceparent: str | None = None
    ) -> list[Outcome]:
        """Make several calls at once and return what became of each, in their order, when all have ended.

        A call that fails is an outcome with an error and raises nothing; it is not retried, its error says whether it may be. What is
        raised is a failure of the whole group. One that was lost without an answer is repeated only if every call carries a key.
        """
        request = group_request(calls, self._transport.options.key_secret)
        response = await self._transport.unary(
            self._executor.InvokeGroup, request, timeout, repeatable=may_repeat(request), traceparent=traceparent
        )
        return outcomes_of(response)

    async def fetch_result(
        self,
        stored: Stored | str,
        access_token: str = "",
        *,
        max_bytes: int = MAX_FETCHED_BYTES,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> bytes:
        """Return a stored result, whole and with the digest that was promised: by `result.stored`, or by its name and access token.

        A lost stream is resumed where it broke off. Raises RESULT_TOO_LARGE instead of reading more than `max_bytes`.
        """
        fetch = Fetch(stored, access_token, max_bytes, self._transport.options.begin(timeout, repeatable=True))
        trace = traceparent or self._transport.options.traceparent()
        while True:
            error, metadata = None, self._transport.options.metadata(trace)
            stream = self._executor.FetchResult(fetch.request, timeout=fetch.begin(), metadata=metadata)
            try:
                with failing_when_closed(trace):
                    async for piece in stream:
                        fetch.saw(piece)
            except grpc.RpcError as failure:
                error = error_from_rpc(failure, trace_id_of(trace))
            finally:
                stream.cancel()
            wait = fetch.wait_after(error)
            if wait is None:
                return fetch.content()
            await self._transport.pause(wait)

    async def content(self, result: Result, *, max_bytes: int = MAX_FETCHED_BYTES, timeout: float | None = None) -> Any:
        """Return the content of a result, fetched first where it is stored."""
        if result.raw or result.stored is None:
            return result.content
        return parse(await self.fetch_result(result.stored, max_bytes=max_bytes, timeout=timeout))

    async def list_tools(
        self,
        *,
        namespace: str = "",
        tags: Iterable[str] = (),
        usable_only: bool = False,
        page_size: int = 100,
        timeout: float | None = None,
    ) -> AsyncIterator[registry_service_pb2.ListedTool]:
        """Iterate over all tools in order of their names, or only those that the caller may use now, page by page; the timeout bounds
        each page."""
        request = requests.list_tools(namespace, tags, page_size, usable_only)
        while True:
            page = await self._transport.unary(self._registry.ListTools, request, timeout, repeatable=True)
            for tool in page.tools:
                yield tool
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def get_tool(self, name: str, *, timeout: float | None = None) -> registry_service_pb2.GetToolResponse:
        """Return a tool and its versions, the highest first."""
        request = registry_service_pb2.GetToolRequest(name=name)
        return await self._transport.unary(self._registry.GetTool, request, timeout, repeatable=True)

    async def resolve_tool(
        self, tool: str, version: str = "", *, timeout: float | None = None
    ) -> tool_version_pb2.ToolVersion:
        """Return the version that a reference and a constraint mean; its digest pins what would run."""
        request = registry_service_pb2.ResolveToolRequest(tool=tool, version_constraint=version)
        return (await self._transport.unary(self._registry.ResolveTool, request, timeout, repeatable=True)).version

    async def get_record(self, name: str, *, timeout: float | None = None) -> audit_record_pb2.LoggedRecord:
        """Return one audit record, by its name in the log or as `records/{record_id}`."""
        request = audit_service_pb2.GetRecordRequest(name=name)
        return (await self._transport.unary(self._audit.GetRecord, request, timeout, repeatable=True)).record

    async def query_records(
        self,
        *,
        ascending: bool = False,
        page_size: int = 100,
        timeout: float | None = None,
        **filters: Unpack[RecordFilters],
    ) -> AsyncIterator[audit_record_pb2.LoggedRecord]:
        """Iterate over audit records, newest first unless ascending; the timeout bounds each page."""
        request = requests.query_records(filters, page_size, ascending=ascending)
        while True:
            page = await self._transport.unary(self._audit.QueryRecords, request, timeout, repeatable=True)
            for record in page.records:
                yield record
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def watch_records(
        self, *, from_sequence: int | None = None, timeout: float | None = None, **filters: Unpack[RecordFilters]
    ) -> AsyncIterator[audit_record_pb2.LoggedRecord]:
        """Iterate over records in log order as they are appended, from now on if no sequence is given.

        Nothing is missed or repeated when a connection is lost. Ends when the timeout passes; without one, only when the
        caller stops.
        """
        # Asked for once: a stream that is lost before its first record would otherwise begin later than this moment.
        begin = log_size(await self.checkpoint()) if from_sequence is None else from_sequence
        watch = Watch(requests.watch_records(filters, begin), self._transport.options.retry, timeout)
        while (seconds := watch.next_stream()) is not None:
            trace, error = self._transport.options.traceparent(), None
            metadata = self._transport.options.metadata(trace)
            stream = self._audit.WatchRecords(watch.request, timeout=seconds, metadata=metadata)
            try:
                with failing_when_closed(trace):
                    async for response in stream:
                        watch.saw(response.record)
                        yield response.record
            except grpc.RpcError as failure:
                error = error_from_rpc(failure, trace_id_of(trace))
            finally:
                stream.cancel()
            await self._transport.pause(watch.wait_after(error))

    async def delegate(
        self,
        agent: str,
        *,
        depth: int | None = None,
        bind_to_agent_key: bool = False,
        timeout: float | None = None,
        **bounds: Unpack[Bounds],
    ) -> token_service_pb2.DelegateTokenResponse:
        """Derive a token for an agent from this client's own: at most what this one holds, and less where bounds say so."""
        request = token_service_pb2.DelegateTokenRequest(
            agent=agent, part=part_of(bounds), delegation_depth=depth, bind_to_agent_key=bind_to_agent_key
        )
        return await self._transport.unary(self._tokens.DelegateToken, request, timeout, repeatable=True)

    async def narrow(
        self, tool: str, *, timeout: float | None = None, **bounds: Unpack[Bounds]
    ) -> token_service_pb2.NarrowTokenResponse:
        """Derive a token for one tool, such as `echo` or `echo@^1.2`, from which nothing can be derived."""
        request = token_service_pb2.NarrowTokenRequest(part=part_of(Bounds(**{**bounds, "tools": [tool]})))
        return await self._transport.unary(self._tokens.NarrowToken, request, timeout, repeatable=True)

    async def checkpoint(self, *, timeout: float | None = None) -> checkpoint_pb2.Checkpoint:
        """Return the log's signed word about everything it holds now."""
        request = audit_service_pb2.GetCheckpointRequest()
        return (await self._transport.unary(self._audit.GetCheckpoint, request, timeout, repeatable=True)).checkpoint

    @cached_property
    def _executor(self) -> ExecutorServiceAsyncStub:
        return ExecutorServiceStub(self._transport.channel)

    @cached_property
    def _registry(self) -> RegistryServiceAsyncStub:
        return RegistryServiceStub(self._transport.channel)

    @cached_property
    def _audit(self) -> AuditServiceAsyncStub:
        return AuditServiceStub(self._transport.channel)

    @cached_property
    def _tokens(self) -> TokenServiceAsyncStub:
        return TokenServiceStub(self._transport.channel)
