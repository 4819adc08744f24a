"""The gateway's peers as real servers: mutual TLS and the chain around handlers that a test controls."""

from __future__ import annotations

import asyncio
import string
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass
from toolmesh.approval.v1 import approval_service_pb2
from toolmesh.audit.v1 import audit_service_pb2, usage_service_pb2
from toolmesh.authz.v1 import authz_service_pb2, authz_service_pb2_grpc, token_service_pb2
from toolmesh.authz.v1.decision_pb2 import Decision
from toolmesh.executor.v1 import executor_service_pb2, executor_service_pb2_grpc, invocation_service_pb2_grpc
from toolmesh.executor.v1.result_envelope_pb2 import (
    EFFECT_SOURCE_REPORTED,
    RESULT_STATUS_SUCCEEDED,
    ObservedEffect,
    ResultEnvelope,
)
from toolmesh.registry.v1 import discovery_service_pb2, registry_service_pb2, registry_service_pb2_grpc
from toolmesh.registry.v1.tool_manifest_pb2 import IDEMPOTENCY_MODE_KEY_REQUIRED, MUTATION_CLASS_READ_ONLY
from toolmesh.registry.v1.tool_version_pb2 import LIFECYCLE_STATE_AVAILABLE

from libs.common.auth.tokens import TokenVerifier
from libs.common.call_context import Call, serving
from libs.common.errors import MeshError, Reason
from libs.common.rpc.chain import build_chain
from libs.common.rpc.policy import AS_PEER, Policy, Row, Tenancy, for_caller
from libs.common.rpc.server import RpcServer, Service
from libs.common.rpc.status import envelope
from libs.common.runtime.settings import ProcessSettings, load
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.gateway.tests.invocations import Invocations

HUGE = 2**64 - 1


class Executor(executor_service_pb2_grpc.ExecutorServiceServicer):
    """Echoes, or acts by the tool's name: `slow` never ends, `fail_<reason>` fails, `held` waits for `release`, `lost`
    ends like a broken connection.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, for the next test."""
        self.seen: list[tuple[Any, Call]] = []
        self.arrived = asyncio.Event()
        self.canceled = asyncio.Event()
        self.release = asyncio.Event()
        # A call of an earlier test may end later, and counts no longer.
        self._under_way: set[object] = set()
        self.most_at_once = 0
        self.watches: list[Any] = []
        self.updates: asyncio.Queue[str] = asyncio.Queue()

    @property
    def at_once(self) -> int:
        """How many calls are under way."""
        return len(self._under_way)

    async def reached(self, calls: int) -> None:
        """Return when so many calls are under way at once."""
        while self.at_once < calls:
            self.arrived.clear()
            await self.arrived.wait()

    async def Invoke(self, request: Any, context: Any) -> Any:
        self.seen.append((request, serving()))
        call = object()
        self._under_way.add(call)
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.arrived.set()
        try:
            if request.tool == "lost":
                await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            await self._act(request.tool.removeprefix("core."))
        except asyncio.CancelledError:
            self.canceled.set()
            raise
        finally:
            self._under_way.discard(call)
        result = ResultEnvelope(status=RESULT_STATUS_SUCCEEDED, structured_content=request.arguments)
        return executor_service_pb2.InvokeResponse(result=result)

    async def InvokeGroup(self, request: Any, context: Any) -> Any:
        outcomes = [
            executor_service_pb2.GroupOutcome(error=envelope(MeshError(Reason.EXECUTION_FAILED)))
            if call.request.tool == "fail"
            else executor_service_pb2.GroupOutcome(result=ResultEnvelope(structured_content=call.request.arguments))
            for call in request.calls
        ]
        return executor_service_pb2.InvokeGroupResponse(outcomes=outcomes)

    async def PreviewInvocation(self, request: Any, context: Any) -> Any:
        change = ObservedEffect(resource="file:a", operation="create", source=EFFECT_SOURCE_REPORTED)
        return executor_service_pb2.PreviewInvocationResponse(
            changes=[change], predicted_result=request.request.arguments, preview_token="t"
        )

    async def FetchResult(self, request: Any, context: Any) -> AsyncIterator[Any]:
        whole = string.ascii_lowercase.encode()
        for place in range(request.offset, min(request.offset + request.max_bytes, len(whole)), 2):
            until = min(place + 2, request.offset + request.max_bytes)
            yield executor_service_pb2.FetchResultResponse(
                content=whole[place:until], offset=place, size_bytes=len(whole)
            )

    async def WatchResources(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Report what a test puts into `updates`; an empty address loses the watch."""
        watched = [uri for uri in request.uris if uri != "test://refused"]
        self.watches.append(request)
        yield executor_service_pb2.WatchResourcesResponse(watching=executor_service_pb2.WatchedResources(uris=watched))
        while uri := await self.updates.get():
            yield executor_service_pb2.WatchResourcesResponse(updated_uri=uri)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    async def _act(self, tool: str) -> None:
        if tool == "slow":
            await asyncio.Event().wait()
        elif tool == "held":
            await self.release.wait()
        elif tool == "crash":
            raise ZeroDivisionError("a secret inside")
        elif tool.startswith("fail_"):
            reason = Reason[tool.removeprefix("fail_").upper()]
            raise MeshError(reason, metadata={"hint": "here"}, retry_after=1.5, invocation_id="inv-1")
        else:
            # Lets the calls of a batch overlap.
            await asyncio.sleep(0)


class Registry(registry_service_pb2_grpc.RegistryServiceServicer):
    """Knows one tool. Which version `slow` means, it never says."""

    def __init__(self) -> None:
        self.watched, self.changed = asyncio.Event(), asyncio.Event()
        self.forget()

    def forget(self) -> None:
        """Begin anew, for the next test."""
        self.seen: list[Any] = []
        self.waiting = asyncio.Event()
        self.canceled = asyncio.Event()

    async def WatchTools(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Say that the tools changed each time `changed` is set. `core.job` runs as a job, and the server behind
        `core` takes subscriptions."""
        job = registry_service_pb2.WatchToolsResponse()
        _fill(job.upserted)
        job.upserted.name = "tools/core.job/versions/1.0.0"
        job.upserted.manifest.execution.progress_supported = True
        yield job
        subscribe = registry_service_pb2.WatchToolsResponse()
        _fill(subscribe.upserted)
        subscribe.upserted.name = "tools/core.resources_subscribe/versions/1.0.0"
        subscribe.upserted.manifest.external_mappings.add().mcp.method = "resources/subscribe"
        yield subscribe
        yield registry_service_pb2.WatchToolsResponse(
            snapshot_complete=registry_service_pb2.SnapshotComplete(), resume_token="0"
        )
        self.watched.set()
        while True:
            await self.changed.wait()
            self.changed.clear()
            event = registry_service_pb2.WatchToolsResponse(resume_token="1")
            _fill(event.upserted)
            event.upserted.manifest.idempotency.mode = IDEMPOTENCY_MODE_KEY_REQUIRED
            yield event

    async def ListTools(self, request: Any, context: Any) -> Any:
        self.seen.append(request)
        response = registry_service_pb2.ListToolsResponse(next_page_token="more")
        listed = response.tools.add()
        listed.tool.name, listed.tool.namespace, listed.tool.tool_id = "tools/core.echo", "core", "echo"
        _fill(listed.version)
        response.tools.add().tool.name = "tools/core.gone"
        return response

    async def GetTool(self, request: Any, context: Any) -> Any:
        self.seen.append(request)
        if request.name != "echo":
            raise MeshError(Reason.TOOL_NOT_FOUND, metadata={"tool": request.name})
        response = registry_service_pb2.GetToolResponse()
        response.tool.name = "tools/core.echo"
        _fill(response.versions.add())
        return response

    async def ResolveTool(self, request: Any, context: Any) -> Any:
        self.seen.append(request)
        if request.tool.endswith("nobody"):
            raise MeshError(Reason.TOOL_NOT_FOUND, metadata={"tool": request.tool})
        if request.tool.endswith("slow"):
            await self._never()
        response = registry_service_pb2.ResolveToolResponse()
        _fill(response.version)
        return response

    async def _never(self) -> None:
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.canceled.set()


class Authz(authz_service_pb2_grpc.AuthzServiceServicer):
    """Returns a key set, and `decision` for every check once `until` is set; a test may change both."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, for the next test."""
        self.seen: list[tuple[Any, Call]] = []
        self.decision = Decision(name="decisions/1", reasons=["because"], determining_policies=["p1"])
        self.decision.policy_set_version = "sha256:1"
        self.decision.allow.SetInParent()
        self.failure: MeshError | None = None
        self.until: asyncio.Event | None = None

    async def Check(self, request: Any, context: Any) -> Any:
        self.seen.append((request, serving()))
        if self.until is not None:
            await self.until.wait()
        if self.failure is not None:
            raise self.failure
        return authz_service_pb2.CheckResponse(decision=self.decision)

    async def GetJwks(self, request: Any, context: Any) -> Any:
        return authz_service_pb2.GetJwksResponse(jwks=b'{"keys":[]}')


def _fill(version: Any) -> None:
    version.name = "tools/core.echo/versions/1.0.0"
    version.digest = "sha256:00"
    version.state = LIFECYCLE_STATE_AVAILABLE
    version.manifest.input.schema = b'{"type":"object","properties":{"n":{"maximum":18446744073709551615}}}'
    version.manifest.output.schema = b'{"type":"object"}'
    version.manifest.mutation_class = MUTATION_CLASS_READ_ONLY
    version.manifest.execution.checkpoint.micro_interval.seconds = 30


def _row(*scopes: str) -> Row:
    return Row({"gateway": for_caller(*scopes)}, 30.0, True, Tenancy.OWN)


EXECUTOR_POLICY: Policy = (
    {
        f"/toolmesh.executor.v1.ExecutorService/{rpc}": _row("tools:call")
        for rpc in ("Invoke", "InvokeGroup", "PreviewInvocation", "FetchResult")
    }
    | {
        "/toolmesh.executor.v1.ExecutorService/WatchResources": Row(
            {"gateway": for_caller("tools:call")}, None, True, Tenancy.OWN
        )
    }
    | {
        f"/toolmesh.executor.v1.InvocationService/{rpc}": _row("tools:call")
        for rpc in (
            *("StartInvocation", "GetInvocation", "ListInvocations", "WaitInvocation", "CancelInvocation"),
            *("ResumeInvocation", "StreamInvocation"),
        )
    }
)
REGISTRY_POLICY: Policy = {
    f"/toolmesh.registry.v1.RegistryService/{rpc}": _row("tools:read")
    for rpc in ("ListTools", "GetTool", "ResolveTool")
} | {"/toolmesh.registry.v1.RegistryService/WatchTools": Row({"gateway": AS_PEER}, None, True, Tenancy.NO_CALLER)}
AUDIT_POLICY: Policy = {
    **{f"/toolmesh.audit.v1.AuditService/{rpc}": _row("audit:read") for rpc in ("GetRecord", "QueryRecords")},
    **{f"/toolmesh.audit.v1.UsageService/{rpc}": _row("audit:read") for rpc in ("GetUsage", "ListTopUsage")},
}
APPROVAL_POLICY: Policy = {
    f"/toolmesh.approval.v1.ApprovalService/{rpc}": _row("approvals:decide")
    for rpc in (
        "GetTicket",
        "ListTickets",
        "ApproveTicket",
        "DenyTicket",
        "CancelTicket",
        "OverrideTicket",
        "ReviewOverride",
    )
}
DISCOVERY_POLICY: Policy = {
    f"/toolmesh.registry.v1.DiscoveryService/{rpc}": _row("tools:read")
    for rpc in ("SearchTools", "CompileSurface", "GetToolSchemas")
}
TOKENS_POLICY: Policy = {f"/toolmesh.authz.v1.TokenService/{rpc}": _row() for rpc in ("DelegateToken", "NarrowToken")}
AUTHZ_POLICY: Policy = {
    "/toolmesh.authz.v1.AuthzService/GetJwks": Row({"*": AS_PEER}, 5.0, True),
    "/toolmesh.authz.v1.AuthzService/Check": _row(),
}


class Peers:
    """The peers, running."""

    def __init__(self, environment: Callable[[str], dict[str, str]], signer: Any) -> None:
        self.executor = Executor()
        # The RPCs that the gateway never calls keep the answer that the stubs give: unimplemented.
        self.registry, self.authz, self.invocations = Registry(), Authz(), Invocations()  # type: ignore[abstract]
        self.reads: list[Any] = []
        self.servers: dict[str, RpcServer] = {}
        self._environment, self._signer = environment, signer

    async def start(self) -> None:
        """Start every peer on a port of the kernel's choice."""
        await self._start(
            "executor",
            "toolmesh.executor.v1.ExecutorService",
            lambda s: executor_service_pb2_grpc.add_ExecutorServiceServicer_to_server(self.executor, s),
            EXECUTOR_POLICY,
            Service(
                "toolmesh.executor.v1.InvocationService",
                lambda s: invocation_service_pb2_grpc.add_InvocationServiceServicer_to_server(self.invocations, s),
            ),
        )
        await self._start(
            "registry",
            "toolmesh.registry.v1.RegistryService",
            lambda s: registry_service_pb2_grpc.add_RegistryServiceServicer_to_server(self.registry, s),
            {**REGISTRY_POLICY, **DISCOVERY_POLICY},
            self._answering(discovery_service_pb2.DESCRIPTOR),
        )
        await self._start(
            "authz",
            "toolmesh.authz.v1.AuthzService",
            lambda s: authz_service_pb2_grpc.add_AuthzServiceServicer_to_server(self.authz, s),
            {**AUTHZ_POLICY, **TOKENS_POLICY},
            self._answering(token_service_pb2.DESCRIPTOR),
        )
        audit, usage = (self._answering(file.DESCRIPTOR) for file in (audit_service_pb2, usage_service_pb2))
        await self._start("audit", audit.name, audit.add, AUDIT_POLICY, usage)
        approval = self._answering(approval_service_pb2.DESCRIPTOR)
        await self._start("approval", approval.name, approval.add, APPROVAL_POLICY)

    async def stop(self) -> None:
        """Stop every peer that still runs."""
        for name in list(self.servers):
            await self.stop_one(name)

    async def stop_one(self, name: str) -> None:
        """Stop one peer."""
        await self.servers.pop(name).drain()

    def addresses(self) -> dict[str, str]:
        """Return the settings that lead to them."""
        return {f"TOOLMESH_{name.upper()}_ADDRESS": f"127.0.0.1:{server.port}" for name, server in self.servers.items()}

    def forget(self) -> None:
        """Begin anew, for the next test."""
        self.reads.clear()
        self.executor.forget()
        self.invocations.forget()
        self.registry.forget()
        self.authz.forget()

    def _answering(self, file: Any) -> Service:
        """Return the service of a file; it notes each request and answers with an empty response."""
        (service,) = file.services_by_name.values()

        def handler(method: Any) -> Any:
            async def answer(request: Any, context: Any) -> Any:
                self.reads.append(request)
                return GetMessageClass(method.output_type)()

            return grpc.unary_unary_rpc_method_handler(
                answer,
                request_deserializer=GetMessageClass(method.input_type).FromString,
                response_serializer=lambda response: response.SerializeToString(),
            )

        handlers = {method.name: handler(method) for method in service.methods if not method.server_streaming}
        return Service(service.full_name, lambda s: s.add_registered_method_handlers(service.full_name, handlers))

    async def _start(self, name: str, service: str, add: Callable[[Any], None], policy: Policy, *more: Service) -> None:
        settings = load(ProcessSettings, {**self._environment(name), "TOOLMESH_DRAIN_SECONDS": "0"})
        chain = build_chain(
            policy=policy,
            verifier=TokenVerifier(self._signer.fetch_jwks, issuer=settings.issuer, audience=settings.audience),
            trust_domain=settings.trust_domain,
            log=Log(name, level="error", descriptor=2),
            tracing=Tracing(),
            sample_ratio=0.0,
            max_concurrent_calls=1000,
        )
        server = RpcServer(settings, chain, [Service(service, add), *more])
        await server.start()
        await server.set_ready(True)
        self.servers[name] = server
