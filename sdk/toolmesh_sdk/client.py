"""The client for threads. `aio.py` has the same methods for asyncio; shared code is in the modules that both import."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Unpack

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
from toolmesh_sdk._wire.proof import ProofKey
from toolmesh_sdk._wire.requests import RecordFilters
from toolmesh_sdk._wire.retry import RetryPolicy
from toolmesh_sdk._wire.status import error_from_rpc
from toolmesh_sdk._wire.trace import new_traceparent, trace_id_of
from toolmesh_sdk._wire.transport import DEFAULT_TIMEOUT, ClientOptions, Token, Transport
from toolmesh_sdk._wire.usage_requests import UsageFilters, top_request, usage_request
from toolmesh_sdk._wire.watch import StreamSession, Watch, log_size
from toolmesh_sdk.discovery import LoadedSchemas, SearchOptions, SearchResult, Surface, SurfaceOptions
from toolmesh_sdk.group import GroupCall, Outcome, group_request, is_repeatable, parse_outcomes
from toolmesh_sdk.jobs import Callback, CallOptions, Job, JobFilters
from toolmesh_sdk.keys import resolve_idempotency_key
from toolmesh_sdk.preview import Preview, parse_preview
from toolmesh_sdk.result import Result, parse_result
from toolmesh_sdk.streams import JobStream, keyed
from toolmesh_sdk.token_request import Bounds, exchange_request, token_part

__all__ = ["Client", "ProofKey", "RecordFilters", "RetryPolicy", "Tls"]


class Client:
    """A client of the mesh. Threads may share one; close it, or use it as a context manager.

    `target` is `host:port` or a URL; without a scheme it is plaintext and must be on this machine. `token` is a
    capability token, or a function that returns a fresh one. Every call has a deadline of `timeout` seconds, including
    retries, unless it sets its own. `traceparent` supplies the trace of each call. `proof_key` proves possession of a
    token that is bound to it. `key_secret` derives the idempotency keys of steps; processes that continue the same
    sessions need the same secret. Every failure is a ToolmeshError.
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
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        options = ClientOptions(
            token=token,
            timeout=timeout,
            retry=retry or RetryPolicy(),
            traceparent=traceparent,
            proof_key=proof_key,
            key_secret=key_secret,
        )
        self._transport = Transport(target, tls, options, pause)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; pending calls fail."""
        self._transport.close()

    @property
    def transport(self) -> Transport:
        """The connection, for services that this client has no method for."""
        return self._transport

    def call(
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
        response = self._transport.unary(
            self._executor.Invoke, request, timeout, repeatable=bool(key), traceparent=traceparent
        )
        return parse_result(response.result)

    def preview(
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
        response = self._transport.unary(
            self._executor.PreviewInvocation, request, timeout, repeatable=True, traceparent=traceparent
        )
        return parse_preview(response)

    def call_group(
        self, calls: Iterable[GroupCall], *, timeout: float | None = None, traceparent: str | None = None
    ) -> list[Outcome]:
        """Make several calls at once and return their outcomes, in order, when all have ended.

        A call that fails is an outcome with an error and is not retried. Only a failure of the whole group is raised. A
        group that was lost without a response is retried only if every call has a key.
        """
        request = group_request(calls, self._transport.options.key_secret)
        response = self._transport.unary(
            self._executor.InvokeGroup, request, timeout, repeatable=is_repeatable(request), traceparent=traceparent
        )
        return parse_outcomes(response)

    def start(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        max_duration: float | None = None,
        callback: Callback | None = None,
        parent: str = "",
        timeout: float | None = None,
        **options: Unpack[CallOptions],
    ) -> Job:
        """Start a call that runs without its caller, and return its handle at once.

        It takes at most `max_duration` seconds, one day by default, and no longer than the token holds that starts it.
        Its end is reported to `callback`. Cancelling the invocation `parent` cancels it too.
        """
        secret = self._transport.options.key_secret
        request = jobs.start_request(tool, arguments, options, max_duration, secret, callback=callback, parent=parent)
        return jobs.start(self._transport, request, timeout)

    def stream(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        max_duration: float | None = None,
        cancel_on_disconnect: bool = False,
        timeout: float | None = None,
        **options: Unpack[CallOptions],
    ) -> JobStream:
        """Return a stream that starts a call when it is iterated over: `for event in client.stream(...)`.

        Lost connections are replaced, without a missing or repeated event. The call goes on without its stream; with
        `cancel_on_disconnect` it is cancelled when no stream is attached to it for 30 seconds.
        """
        secret = self._transport.options.key_secret
        request = jobs.start_request(
            tool, arguments, options, max_duration, secret, cancel_on_disconnect=cancel_on_disconnect
        )
        session = StreamSession(keyed(request), "", 0, self._transport.options.retry, timeout)
        return JobStream(self._transport, session)

    def attach(self, name: str, *, after: int = 0, timeout: float | None = None) -> JobStream:
        """Return a stream of an invocation that was started before, behind a sequence."""
        return JobStream(self._transport, StreamSession(None, name, after, self._transport.options.retry, timeout))

    def job(self, name: str) -> Job:
        """Return the handle of an invocation that was started before."""
        return Job(self._transport, name)

    def list_jobs(
        self, *, page_size: int = 100, timeout: float | None = None, **filters: Unpack[JobFilters]
    ) -> Iterator[invocation_pb2.Invocation]:
        """Iterate over the caller's invocations, newest first; the timeout applies to each page."""
        return jobs.pages(self._transport, jobs.list_request(filters, page_size), timeout)

    def fetch_result(
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
                for chunk in stream:
                    fetch.add(chunk)
            except grpc.RpcError as failure:
                error = error_from_rpc(failure, trace_id_of(trace))
            finally:
                stream.cancel()
            wait = fetch.wait_after(error)
            if wait is None:
                return fetch.content()
            self._transport.pause(wait)

    def content(self, result: Result, *, max_bytes: int = MAX_FETCHED_BYTES, timeout: float | None = None) -> Any:
        """Return the content of a result; stored content is fetched first."""
        if result.raw or result.stored is None:
            return result.content
        return parse(self.fetch_result(result.stored, max_bytes=max_bytes, timeout=timeout))

    def list_tools(
        self,
        *,
        namespace: str = "",
        tags: Iterable[str] = (),
        usable_only: bool = False,
        page_size: int = 100,
        timeout: float | None = None,
    ) -> Iterator[registry_service_pb2.ListedTool]:
        """Iterate over tools by name, all or only those that the caller may use; the timeout applies to each page."""
        request = requests.list_tools(namespace, tags, page_size, usable_only)
        while True:
            page = self._transport.unary(self._registry.ListTools, request, timeout, repeatable=True)
            yield from page.tools
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def get_tool(self, name: str, *, timeout: float | None = None) -> registry_service_pb2.GetToolResponse:
        """Return a tool and its versions, highest first."""
        request = registry_service_pb2.GetToolRequest(name=name)
        return self._transport.unary(self._registry.GetTool, request, timeout, repeatable=True)

    def resolve_tool(
        self, tool: str, version: str = "", *, timeout: float | None = None
    ) -> tool_version_pb2.ToolVersion:
        """Resolve a reference and a constraint to a version; its digest pins the version of a call."""
        request = registry_service_pb2.ResolveToolRequest(tool=tool, version_constraint=version)
        return self._transport.unary(self._registry.ResolveTool, request, timeout, repeatable=True).version

    def search(
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
            self._transport.unary(self._discovery.SearchTools, request, timeout, repeatable=True)
        )

    def surface(
        self, task: str, budget: int = 2000, *, timeout: float | None = None, **options: Unpack[SurfaceOptions]
    ) -> Surface:
        """Return the tools for a task, as a text of at most `budget` tokens and as schemas.

        Raises INVALID_REQUEST for a budget that holds nothing; `required_tokens` of its metadata is the smallest.
        The timeout applies to each request: the surface's and those for its schemas.
        """
        request = discovery.surface_request(task, budget, options)
        response = self._transport.unary(self._discovery.CompileSurface, request, timeout, repeatable=True)
        compiled = discovery.compiled_surface(response)
        pages = [
            self._transport.unary(self._discovery.GetToolSchemas, page, timeout, repeatable=True)
            for page in discovery.schemas_requests(tool.version for tool in compiled.loaded_tools)
        ]
        return discovery.parse_surface(compiled, pages)

    def schemas(self, tools: Iterable[str], *, detail: bool = False, timeout: float | None = None) -> LoadedSchemas:
        """Return the schemas of tools; what cannot be loaded is in `unloaded`. `detail` adds examples to the text."""
        pages = [
            self._transport.unary(self._discovery.GetToolSchemas, page, timeout, repeatable=True)
            for page in discovery.schemas_requests(tools, detail=detail)
        ]
        return discovery.parse_schemas(pages)

    def get_record(self, name: str, *, timeout: float | None = None) -> audit_record_pb2.LoggedRecord:
        """Return one audit record, by its name in the log or as `records/{record_id}`."""
        request = audit_service_pb2.GetRecordRequest(name=name)
        return self._transport.unary(self._audit.GetRecord, request, timeout, repeatable=True).record

    def query_records(
        self,
        *,
        ascending: bool = False,
        page_size: int = 100,
        timeout: float | None = None,
        **filters: Unpack[RecordFilters],
    ) -> Iterator[audit_record_pb2.LoggedRecord]:
        """Iterate over audit records, newest first unless ascending; the timeout applies to each page."""
        request = requests.query_records(filters, page_size, ascending=ascending)
        while True:
            page = self._transport.unary(self._audit.QueryRecords, request, timeout, repeatable=True)
            yield from page.records
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def watch_records(
        self, *, from_sequence: int | None = None, timeout: float | None = None, **filters: Unpack[RecordFilters]
    ) -> Iterator[audit_record_pb2.LoggedRecord]:
        """Iterate over records in log order as they are appended; without a sequence, from now on.

        No record is missed or repeated when a connection is lost. Ends after the timeout; without one, when the caller
        stops.
        """
        # Read once: a stream that is lost before its first record must not start later than this.
        begin = log_size(self.checkpoint()) if from_sequence is None else from_sequence
        watch = Watch(requests.watch_records(filters, begin), self._transport.options.retry, timeout)
        while (seconds := watch.next_stream()) is not None:
            trace, error = self._transport.options.traceparent(), None
            metadata = self._transport.options.metadata(trace)
            stream = self._audit.WatchRecords(watch.request, timeout=seconds, metadata=metadata)
            try:
                for response in stream:
                    watch.advance(response.record)
                    yield response.record
            except grpc.RpcError as failure:
                error = error_from_rpc(failure, trace_id_of(trace))
            finally:
                stream.cancel()
            self._transport.pause(watch.wait_after(error))

    def delegate(
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
        return self._transport.unary(self._tokens.DelegateToken, request, timeout, repeatable=True)

    def exchange(
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
        return self._transport.unary(self._tokens.ExchangeToken, request, timeout, repeatable=True)

    def narrow(
        self, tool: str, *, timeout: float | None = None, **bounds: Unpack[Bounds]
    ) -> token_service_pb2.NarrowTokenResponse:
        """Derive a token for one tool, such as `echo` or `echo@^1.2`; it cannot be delegated further."""
        request = token_service_pb2.NarrowTokenRequest(part=token_part(Bounds(**{**bounds, "tools": [tool]})))
        return self._transport.unary(self._tokens.NarrowToken, request, timeout, repeatable=True)

    def usage(
        self, *, timeout: float | None = None, **filters: Unpack[UsageFilters]
    ) -> usage_service_pb2.GetUsageResponse:
        """Return the usage of the filtered calls, in total and by day."""
        request = usage_request(filters)
        return self._transport.unary(self._usage.GetUsage, request, timeout, repeatable=True)

    def top_usage(
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
        return self._transport.unary(self._usage.ListTopUsage, request, timeout, repeatable=True)

    def checkpoint(self, *, timeout: float | None = None) -> checkpoint_pb2.Checkpoint:
        """Return a signed checkpoint of the whole log."""
        request = audit_service_pb2.GetCheckpointRequest()
        return self._transport.unary(self._audit.GetCheckpoint, request, timeout, repeatable=True).checkpoint

    @cached_property
    def _executor(self) -> ExecutorServiceStub:
        return ExecutorServiceStub(self._transport.channel)

    @cached_property
    def _registry(self) -> RegistryServiceStub:
        return RegistryServiceStub(self._transport.channel)

    @cached_property
    def _audit(self) -> AuditServiceStub:
        return AuditServiceStub(self._transport.channel)

    @cached_property
    def _tokens(self) -> TokenServiceStub:
        return TokenServiceStub(self._transport.channel)

    @cached_property
    def _discovery(self) -> DiscoveryServiceStub:
        return DiscoveryServiceStub(self._transport.channel)

    @cached_property
    def _usage(self) -> UsageServiceStub:
        return UsageServiceStub(self._transport.channel)
