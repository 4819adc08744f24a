"""The client for asyncio, with the same methods as `client.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import grpc
from toolmesh.audit.v1 import audit_record_pb2, audit_service_pb2, checkpoint_pb2, usage_service_pb2
from toolmesh.audit.v1.audit_service_pb2_grpc import AuditServiceStub
from toolmesh.audit.v1.usage_service_pb2_grpc import UsageServiceStub
from toolmesh.authz.v1 import token_service_pb2
from toolmesh.authz.v1.token_service_pb2_grpc import TokenServiceStub
from toolmesh.executor.v1 import executor_service_pb2, invocation_pb2
from toolmesh.executor.v1.executor_service_pb2_grpc import ExecutorServiceStub
from toolmesh.registry.v1 import registry_service_pb2, tool_version_pb2
from toolmesh.registry.v1.discovery_service_pb2_grpc import DiscoveryServiceStub
from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceStub

from toolmesh_sdk import discovery, jobs
from toolmesh_sdk._wire import requests
from toolmesh_sdk._wire.connection import Tls
from toolmesh_sdk._wire.envelope import StoredResult
from toolmesh_sdk._wire.fetch import MAX_FETCHED_BYTES, Fetch
from toolmesh_sdk._wire.payload import parse
from toolmesh_sdk._wire.requests import RecordFilters
from toolmesh_sdk._wire.retry import RetryPolicy
from toolmesh_sdk._wire.status import error_from_rpc
from toolmesh_sdk._wire.trace import new_traceparent, trace_id_of
from toolmesh_sdk._wire.transport import DEFAULT_TIMEOUT, AsyncTransport, ClientOptions, Token, canceled_when_closed
from toolmesh_sdk._wire.usage_requests import UsageFilters, top_request, usage_request
from toolmesh_sdk._wire.watch import StreamSession, Watch, log_size
from toolmesh_sdk.discovery import LoadedSchemas, SearchOptions, SearchResult, Surface, SurfaceOptions
from toolmesh_sdk.group import GroupCall, Outcome, group_request, is_repeatable, parse_outcomes
from toolmesh_sdk.jobs import AsyncJob, Callback, CallOptions, JobFilters
from toolmesh_sdk.keys import resolve_idempotency_key
from toolmesh_sdk.preview import Preview, parse_preview
from toolmesh_sdk.result import Result, parse_result
from toolmesh_sdk.streams import AsyncJobStream, keyed
from toolmesh_sdk.token_request import Bounds, exchange_request, token_part

if TYPE_CHECKING:  # the generated async stubs exist for type checkers only
    from toolmesh.audit.v1.audit_service_pb2_grpc import AuditServiceAsyncStub
    from toolmesh.audit.v1.usage_service_pb2_grpc import UsageServiceAsyncStub
    from toolmesh.authz.v1.token_service_pb2_grpc import TokenServiceAsyncStub
    from toolmesh.executor.v1.executor_service_pb2_grpc import ExecutorServiceAsyncStub
    from toolmesh.registry.v1.discovery_service_pb2_grpc import DiscoveryServiceAsyncStub
    from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceAsyncStub

    from toolmesh_sdk._wire.proof import ProofKey


class AsyncClient:
    """An asyncio client of the mesh. Close it, or use it as an async context manager.

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
        options = ClientOptions(
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
        """Close the connection; pending calls fail."""
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
        ticket: str = "",
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> Result:
        """Call a tool. With an idempotency key, repeated calls have one effect.

        Instead of a key, pass a `step` of the session: the key is derived from session, tool, step and arguments with
        the client's `key_secret`, so that a restarted process that repeats the step uses the same key.

        Every retry has the same key. Without a key, a lost call is not retried: the tool may have run.

        `priority` orders the call in the queue, 1 to 10; 0 is the tool's own. `preview_token` comes from a `preview`
        of the same call; policies may require one. `ticket` is the approved ticket of the same call, from the metadata
        of its ApprovalRequiredError.
        """
        secret = self._transport.options.key_secret
        key = resolve_idempotency_key(secret, session_id, tool, arguments, step=step, explicit=idempotency_key)
        request = requests.invoke(
            *(tool, arguments, version, key, session_id, task_id, native_call_id, tool_digest),
            priority=priority,
            preview_token=preview_token,
            ticket=ticket,
        )
        response = await self._transport.unary(
            self._executor.Invoke, request, timeout, repeatable=bool(key), traceparent=traceparent
        )
        return parse_result(response.result)

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
        """Preview a call without its effects; the token of the preview is for `call`, where a preview is required.

        Fails like the call itself, and with PreconditionFailedError if the tool has no preview.
        """
        call = requests.invoke(
            *(tool, arguments, version, "", session_id, task_id, native_call_id, tool_digest), priority=priority
        )
        request = executor_service_pb2.PreviewInvocationRequest(request=call)
        response = await self._transport.unary(
            self._executor.PreviewInvocation, request, timeout, repeatable=True, traceparent=traceparent
        )
        return parse_preview(response)

    async def call_group(
        self, calls: Iterable[GroupCall], *, timeout: float | None = None, traceparent: str | None = None
    ) -> list[Outcome]:
        """Make several calls at once and return their outcomes, in order, when all have ended.

        A call that fails is an outcome with an error and is not retried. Only a failure of the whole group is raised. A
        group that was lost without a response is retried only if every call has a key.
        """
        request = group_request(calls, self._transport.options.key_secret)
        response = await self._transport.unary(
            self._executor.InvokeGroup, request, timeout, repeatable=is_repeatable(request), traceparent=traceparent
        )
        return parse_outcomes(response)

    async def start(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        max_duration: float | None = None,
        callback: Callback | None = None,
        parent: str = "",
        timeout: float | None = None,
        **options: Unpack[CallOptions],
    ) -> AsyncJob:
        """Start a call that runs without its caller, and return its handle at once.

        It takes at most `max_duration` seconds, one day by default, and no longer than the token holds that starts it.
        Its end is reported to `callback`. Cancelling the invocation `parent` cancels it too.
        """
        secret = self._transport.options.key_secret
        request = jobs.start_request(tool, arguments, options, max_duration, secret, callback=callback, parent=parent)
        return await jobs.start_async(self._transport, request, timeout)

    def stream(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        max_duration: float | None = None,
        cancel_on_disconnect: bool = False,
        timeout: float | None = None,
        **options: Unpack[CallOptions],
    ) -> AsyncJobStream:
        """Return a stream that starts a call when it is iterated over: `async for event in client.stream(...)`.

        Lost connections are replaced, without a missing or repeated event. The call goes on without its stream; with
        `cancel_on_disconnect` it is cancelled when no stream is attached to it for 30 seconds.
        """
        secret = self._transport.options.key_secret
        request = jobs.start_request(
            tool, arguments, options, max_duration, secret, cancel_on_disconnect=cancel_on_disconnect
        )
        session = StreamSession(keyed(request), "", 0, self._transport.options.retry, timeout)
        return AsyncJobStream(self._transport, session)

    def attach(self, name: str, *, after: int = 0, timeout: float | None = None) -> AsyncJobStream:
        """Return a stream of an invocation that was started before, behind a sequence."""
        return AsyncJobStream(self._transport, StreamSession(None, name, after, self._transport.options.retry, timeout))

    def job(self, name: str) -> AsyncJob:
        """Return the handle of an invocation that was started before."""
        return AsyncJob(self._transport, name)

    def list_jobs(
        self, *, page_size: int = 100, timeout: float | None = None, **filters: Unpack[JobFilters]
    ) -> AsyncIterator[invocation_pb2.Invocation]:
        """Iterate over the caller's invocations, newest first; the timeout applies to each page."""
        return jobs.pages_async(self._transport, jobs.list_request(filters, page_size), timeout)

    async def fetch_result(
        self,
        stored: StoredResult | str,
        access_token: str = "",
        *,
        max_bytes: int = MAX_FETCHED_BYTES,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> bytes:
        """Return a stored result, by `result.stored` or by its name and access token, verified against its digest.

        A lost stream is resumed. Raises RESULT_TOO_LARGE for more than `max_bytes`.
        """
        fetch = Fetch(stored, access_token, max_bytes, self._transport.options.start_attempts(timeout, repeatable=True))
        trace = traceparent or self._transport.options.traceparent()
        while True:
            error, metadata = None, self._transport.options.metadata(trace)
            stream = self._executor.FetchResult(fetch.request, timeout=fetch.start_attempt(), metadata=metadata)
            try:
                with canceled_when_closed(trace):
                    async for chunk in stream:
                        fetch.add(chunk)
            except grpc.RpcError as failure:
                error = error_from_rpc(failure, trace_id_of(trace))
            finally:
                stream.cancel()
            wait = fetch.wait_after(error)
            if wait is None:
                return fetch.content()
            await self._transport.pause(wait)

    async def content(self, result: Result, *, max_bytes: int = MAX_FETCHED_BYTES, timeout: float | None = None) -> Any:
        """Return the content of a result; stored content is fetched first."""
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
        """Iterate over tools by name, all or only those that the caller may use; the timeout applies to each page."""
        request = requests.list_tools(namespace, tags, page_size, usable_only)
        while True:
            page = await self._transport.unary(self._registry.ListTools, request, timeout, repeatable=True)
            for tool in page.tools:
                yield tool
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def get_tool(self, name: str, *, timeout: float | None = None) -> registry_service_pb2.GetToolResponse:
        """Return a tool and its versions, highest first."""
        request = registry_service_pb2.GetToolRequest(name=name)
        return await self._transport.unary(self._registry.GetTool, request, timeout, repeatable=True)

    async def resolve_tool(
        self, tool: str, version: str = "", *, timeout: float | None = None
    ) -> tool_version_pb2.ToolVersion:
        """Resolve a reference and a constraint to a version; its digest pins the version of a call."""
        request = registry_service_pb2.ResolveToolRequest(tool=tool, version_constraint=version)
        return (await self._transport.unary(self._registry.ResolveTool, request, timeout, repeatable=True)).version

    async def search(
        self,
        query: str = "",
        *,
        max_results: int = 10,
        timeout: float | None = None,
        **options: Unpack[SearchOptions],
    ) -> SearchResult:
        """Search tools by name, keywords or meaning; best first, and only tools that the token allows."""
        request = discovery.search_request(query, max_results, options)
        return discovery.parse_search(
            await self._transport.unary(self._discovery.SearchTools, request, timeout, repeatable=True)
        )

    async def surface(
        self, task: str, budget: int = 2000, *, timeout: float | None = None, **options: Unpack[SurfaceOptions]
    ) -> Surface:
        """Return the tools for a task, as a text of at most `budget` tokens and as schemas.

        Raises INVALID_REQUEST for a budget that holds nothing; `required_tokens` of its metadata is the smallest.
        The timeout applies to each request: the surface's and those for its schemas.
        """
        request = discovery.surface_request(task, budget, options)
        response = await self._transport.unary(self._discovery.CompileSurface, request, timeout, repeatable=True)
        compiled = discovery.compiled_surface(response)
        pages = [
            await self._transport.unary(self._discovery.GetToolSchemas, page, timeout, repeatable=True)
            for page in discovery.schemas_requests(tool.version for tool in compiled.loaded_tools)
        ]
        return discovery.parse_surface(compiled, pages)

    async def schemas(
        self, tools: Iterable[str], *, detail: bool = False, timeout: float | None = None
    ) -> LoadedSchemas:
        """Return the schemas of tools; what cannot be loaded is in `unloaded`. `detail` adds examples to the text."""
        pages = [
            await self._transport.unary(self._discovery.GetToolSchemas, page, timeout, repeatable=True)
            for page in discovery.schemas_requests(tools, detail=detail)
        ]
        return discovery.parse_schemas(pages)

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
        """Iterate over audit records, newest first unless ascending; the timeout applies to each page."""
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
        """Iterate over records in log order as they are appended; without a sequence, from now on.

        No record is missed or repeated when a connection is lost. Ends after the timeout; without one, when the caller
        stops.
        """
        # Read once: a stream that is lost before its first record must not start later than this.
        begin = log_size(await self.checkpoint()) if from_sequence is None else from_sequence
        watch = Watch(requests.watch_records(filters, begin), self._transport.options.retry, timeout)
        while (seconds := watch.next_stream()) is not None:
            trace, error = self._transport.options.traceparent(), None
            metadata = self._transport.options.metadata(trace)
            stream = self._audit.WatchRecords(watch.request, timeout=seconds, metadata=metadata)
            try:
                with canceled_when_closed(trace):
                    async for response in stream:
                        watch.advance(response.record)
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
        """Derive a token for an agent from this client's token, limited by the bounds."""
        request = token_service_pb2.DelegateTokenRequest(
            agent=agent, part=token_part(bounds), delegation_depth=depth, bind_to_agent_key=bind_to_agent_key
        )
        return await self._transport.unary(self._tokens.DelegateToken, request, timeout, repeatable=True)

    async def exchange(
        self,
        subject_token: str,
        *,
        scopes: Iterable[str] = (),
        ttl_seconds: float | None = None,
        proof: str = "",
        timeout: float | None = None,
    ) -> token_service_pb2.ExchangeTokenResponse:
        """Exchange the token of an outside issuer that the mesh trusts for one of the mesh. Needs no token of the mesh.

        Without `scopes` it has all that the issuer's users are granted. `proof` binds it, as that of `Bounds` does.
        """
        request = exchange_request(subject_token, scopes, ttl_seconds, proof)
        return await self._transport.unary(self._tokens.ExchangeToken, request, timeout, repeatable=True)

    async def narrow(
        self, tool: str, *, timeout: float | None = None, **bounds: Unpack[Bounds]
    ) -> token_service_pb2.NarrowTokenResponse:
        """Derive a token for one tool, such as `echo` or `echo@^1.2`; it cannot be delegated further."""
        request = token_service_pb2.NarrowTokenRequest(part=token_part(Bounds(**{**bounds, "tools": [tool]})))
        return await self._transport.unary(self._tokens.NarrowToken, request, timeout, repeatable=True)

    async def usage(
        self, *, timeout: float | None = None, **filters: Unpack[UsageFilters]
    ) -> usage_service_pb2.GetUsageResponse:
        """Return the usage of the filtered calls, in total and by day."""
        request = usage_request(filters)
        return await self._transport.unary(self._usage.GetUsage, request, timeout, repeatable=True)

    async def top_usage(
        self,
        group: str,
        order: str = "calls",
        *,
        number: int = 20,
        timeout: float | None = None,
        **filters: Unpack[UsageFilters],
    ) -> usage_service_pb2.ListTopUsageResponse:
        """Return the first entries, 100 at most, of a ranking by calls, errors, cost or latency.

        `group` is tool, version, caller or task. Raises ValueError for an unknown group or order.
        """
        request = top_request(group, order, number, filters)
        return await self._transport.unary(self._usage.ListTopUsage, request, timeout, repeatable=True)

    async def checkpoint(self, *, timeout: float | None = None) -> checkpoint_pb2.Checkpoint:
        """Return a signed checkpoint of the whole log."""
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

    @cached_property
    def _discovery(self) -> DiscoveryServiceAsyncStub:
        return DiscoveryServiceStub(self._transport.channel)

    @cached_property
    def _usage(self) -> UsageServiceAsyncStub:
        return UsageServiceStub(self._transport.channel)
