"""Tenants of one mesh: callers with every scope, and what a tenant can have in the mesh."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from toolmesh.approval.v1 import approval_service_pb2 as approval_pb
from toolmesh.approval.v1 import approval_service_pb2_grpc as approval_rpc
from toolmesh.audit.v1 import audit_service_pb2 as audit_pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as audit_rpc
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as authz_rpc
from toolmesh.authz.v1 import token_service_pb2 as token_pb
from toolmesh.authz.v1 import token_service_pb2_grpc as token_rpc
from toolmesh.authz.v1.capability_token_pb2 import ToolGrant
from toolmesh.common.v1 import caller_pb2
from toolmesh.executor.v1 import executor_service_pb2 as executor_pb
from toolmesh.executor.v1 import idempotency_key_pb2 as kpb
from toolmesh.executor.v1 import invocation_service_pb2 as job_pb
from toolmesh.executor.v1 import invocation_service_pb2_grpc as job_rpc
from toolmesh.executor.v1 import key_service_pb2 as key_pb
from toolmesh.executor.v1 import key_service_pb2_grpc as key_rpc
from toolmesh.registry.v1 import lifecycle_service_pb2 as lifecycle_pb
from toolmesh.registry.v1 import lifecycle_service_pb2_grpc as lifecycle_rpc
from toolmesh.registry.v1 import registry_service_pb2 as registry_pb
from toolmesh.registry.v1 import registry_service_pb2_grpc as registry_rpc

from libs.common.ids import new_id
from libs.common.json.jsonio import dump
from services.registry.tests.manifests import reader
from tests.harness.mesh import Mesh, invoke
from tests.harness.tenancy.rpcs import RPC_SERVICES, policy

# Scopes that no policy row names, because the domain checks them.
_SCOPES_OF_DOMAINS = {"approvals:read", "authz:evaluate"}
EVERY_SCOPE = sorted(
    _SCOPES_OF_DOMAINS.union(
        *(access.scopes for name in RPC_SERVICES for row in policy(name).values() for access in row.allow.values())
    )
)
# Written as short exponents, so that the result is larger than its arguments and has to be stored.
_LARGE_ARGUMENTS = b'{"text":"large","value":[' + b",".join([b"1e15"] * 200_000) + b"]}"


@dataclass
class Channels:
    """Open channels to the services of a mesh, by service and peer."""

    mesh: Mesh
    _stack: ExitStack
    _open: dict[tuple[str, str], grpc.Channel] = field(default_factory=dict)

    def to(self, service: str, peer: str = "orchestrator") -> grpc.Channel:
        """Return the channel of a peer to a service."""
        if (service, peer) not in self._open:
            self._open[service, peer] = self._stack.enter_context(self.mesh.direct_channel(service, peer))
        return self._open[service, peer]


@dataclass
class Tenant:
    """A tenant and one caller of it, whose token has every scope."""

    channels: Channels
    tag: str = field(default_factory=lambda: "t" + new_id().replace("-", "")[-20:])
    """Occurs in every name that the tenant chooses."""
    token: str = ""
    token_id: str = ""

    def __post_init__(self) -> None:
        self.token, self.token_id = self.mint()

    @property
    def subject(self) -> str:
        return f"did:web:{self.tag}.example:users:admin"

    @property
    def metadata(self) -> Any:
        return [("authorization", f"Bearer {self.token}")]

    def mint(self) -> tuple[str, str]:
        """Mint a token of the tenant; return it with its id."""
        request = authz_pb.IssueTokenRequest(
            subject=self.subject, tenant=self.tag, tools=[ToolGrant(tool="*")], scopes=EVERY_SCOPE
        )
        issued = authz_rpc.AuthzServiceStub(self.channels.to("authz", "operator")).IssueToken(request, timeout=10)
        return issued.token, issued.claims.token_id

    def invoke(self, arguments: bytes | None = None, **request: Any) -> Any:
        """Call the echo tool and return the result."""
        arguments = dump({"text": self.tag}) if arguments is None else arguments
        return invoke(self.channels.to("executor"), "echo", arguments, token=self.token, request=request).result


@dataclass
class Owner(Tenant):
    """A tenant that has one of everything that a tenant can have."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.session = f"session-{self.tag}"
        self.spare_id = self.mint()[1]
        self.call: dict[str, Any] = {
            "arguments": b'{"text":"hello"}',
            "idempotency_key": f"key-{self.tag}",
            "session_id": self.session,
            "task_id": self.tag,
        }
        self.invocation_id = self.invoke(**self.call).invocation_id
        self.stored = self.invoke(_LARGE_ARGUMENTS).persisted[0]
        self.job = self._start()
        self.decision = self._check().name
        self.ticket = self._ticket().name
        self.revoked_id = self._revoke(self.mint()[1])
        self.tool, self.other_tool, self.alias = f"tools/{self.tag}.find", f"tools/{self.tag}.seek", f"{self.tag}.look"
        self.version = f"{self.tool}/versions/1.0.0"
        for manifest in (reader(f"{self.tag}.find", aliases=["look"]), reader(f"{self.tag}.seek")):
            self._register(manifest)

    @cached_property
    def record(self) -> str:
        """The name of a record of the tenant's call."""
        request = audit_pb.QueryRecordsRequest(filter=audit_pb.RecordFilter(invocation_id=self.invocation_id))
        stub = audit_rpc.AuditServiceStub(self.channels.to("audit"))
        return str(stub.QueryRecords(request, metadata=self.metadata, timeout=10).records[0].name)

    @cached_property
    def key(self) -> str:
        """The name of the idempotency key of the tenant's call."""
        request = key_pb.ListKeysRequest(key=self.call["idempotency_key"], states=[kpb.KEY_STATE_SUCCEEDED])
        stub = key_rpc.KeyServiceStub(self.channels.to("executor"))
        return str(stub.ListKeys(request, metadata=self.metadata, timeout=10).keys[0].name)

    def disable_tools(self) -> None:
        """Take the tenant's tools out of use, as the operator."""
        stub = lifecycle_rpc.LifecycleServiceStub(self.channels.to("registry", "operator"))
        for tool in (self.tool, self.other_tool):
            # Refused where no version is in use any more.
            with suppress(grpc.RpcError):
                stub.DisableTool(lifecycle_pb.DisableToolRequest(name=tool, reason="the test is over"), timeout=10)

    @property
    def marks(self) -> list[bytes]:
        """What no other tenant may read."""
        names = (self.tag, self.token_id, self.spare_id, self.revoked_id, self.invocation_id)
        return [name.encode() for name in (*names, self.job, self.decision, self.ticket, self.stored.ref)]

    def call_facts(self) -> authz_pb.CallFacts:
        """Return the facts of a call in the tenant's session."""
        return authz_pb.CallFacts(
            tool_version="tools/core.echo/versions/1.0.0",
            tool_digest="sha256:00",
            mutation_class="read_only",
            session_id=self.session,
        )

    def _start(self) -> str:
        """Start an invocation, and return its name once it ended and its callback is about to be called."""
        # No receiver: the delivery stays.
        callback = job_pb.Callback(url="https://receiver.invalid/hook", secret="whsec_" + "A" * 32)
        call = executor_pb.InvokeRequest(tool="echo", **self.call)
        request = job_pb.StartInvocationRequest(request=call, callback=callback)
        stub = job_rpc.InvocationServiceStub(self.channels.to("executor"))
        name = str(stub.StartInvocation(request, metadata=self.metadata, timeout=30).invocation.name)
        wait = job_pb.WaitInvocationRequest(name=name, timeout=Duration(seconds=120))
        assert stub.WaitInvocation(wait, metadata=self.metadata, timeout=150).invocation.HasField("end_time")
        return name

    def _check(self) -> Any:
        stub = authz_rpc.AuthzServiceStub(self.channels.to("authz", "gateway"))
        return stub.Check(authz_pb.CheckRequest(call=self.call_facts()), metadata=self.metadata, timeout=10).decision

    def _ticket(self) -> Any:
        request = approval_pb.CreateTicketRequest(
            request_id=f"ticket-{self.tag}",
            tool_version="tools/core.echo/versions/1.0.0",
            tool_digest="sha256:00",
            arguments_digest="sha256:00",
            requester=caller_pb2.Caller(subject=self.subject, tenant=self.tag, token_id=self.token_id),
            invocation=f"invocations/{self.invocation_id}",
            escalation_chain=["leads"],
        )
        stub = approval_rpc.ApprovalServiceStub(self.channels.to("approval", "executor"))
        return stub.CreateTicket(request, timeout=10).ticket

    def _revoke(self, token_id: str) -> str:
        stub = token_rpc.TokenServiceStub(self.channels.to("authz"))
        stub.RevokeToken(token_pb.RevokeTokenRequest(token_id=token_id), metadata=self.metadata, timeout=10)
        return token_id

    def _register(self, manifest: Any) -> None:
        stub = registry_rpc.RegistryServiceStub(self.channels.to("registry"))
        stub.RegisterTool(registry_pb.RegisterToolRequest(manifest=manifest), metadata=self.metadata, timeout=10)
