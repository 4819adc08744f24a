"""The executor's peers as real servers over mutual TLS: honest by default, and able to misbehave when a test asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.approval.v1 import approval_service_pb2 as approval_pb
from toolmesh.approval.v1 import approval_service_pb2_grpc as approval_rpc
from toolmesh.approval.v1 import ticket_pb2 as tpb
from toolmesh.audit.v1 import audit_record_pb2 as rpb
from toolmesh.audit.v1 import audit_service_pb2 as audit_pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as audit_rpc
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as authz_rpc
from toolmesh.authz.v1 import decision_pb2 as dpb
from toolmesh.registry.v1 import registry_service_pb2 as registry_pb
from toolmesh.registry.v1 import registry_service_pb2_grpc as registry_rpc
from toolmesh.registry.v1 import runner_service_pb2 as runner_pb
from toolmesh.registry.v1 import runner_service_pb2_grpc as runner_rpc
from toolmesh.registry.v1 import tool_version_pb2 as vpb
from toolmesh.registry.v1.tool_health_pb2 import VersionHealth, VersionHealths
from toolmesh.registry.v1.tool_trust_pb2 import ToolTrust, ToolTrusts

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.json.canonical import digest_bytes
from libs.common.rpc.client import channel_to
from libs.common.rpc.server import server_credentials
from libs.common.rpc.status import status_code, trailing_details
from libs.common.runtime.clock import SystemClock
from libs.common.runtime.settings import Address
from tests.harness.evidence.records import read
from tests.harness.servers.issuer import Invalidations


def credentials(pki: Any, name: str) -> Any:
    """The files that prove to be the peer of this name."""
    identity = pki.of(name)
    return SimpleNamespace(tls_cert=identity.cert, tls_key=identity.key, tls_ca=pki.ca)


@asynccontextmanager
async def serving(pki: Any, name: str, add: Callable[[grpc.aio.Server], None], port: int = 0) -> AsyncIterator[Address]:
    """Serve a peer of this name; it dies with its connections when the block ends."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    add(server)
    bound = server.add_secure_port(f"127.0.0.1:{port}", server_credentials(credentials(pki, name)))
    await server.start()
    try:
        yield Address("127.0.0.1", bound)
    finally:
        await server.stop(None)


@asynccontextmanager
async def reaching(pki: Any, name: str, address: Address) -> AsyncIterator[grpc.aio.Channel]:
    """A channel of the executor to the peer of this name."""
    async with channel_to(name, address, credentials(pki, "executor")) as channel:
        yield channel


async def refuse(context: Any, reason: Reason) -> None:
    """End a call like the chain of a real service does."""
    error = MeshError(reason)
    await context.abort(status_code(error), error.message, trailing_details(error))


class AuditPeer(audit_rpc.AuditServiceServicer):
    """A log in memory. It stores a record id once, acknowledges in order, and can withhold, forget or refuse."""

    address: Address

    def __init__(self) -> None:
        self.records: list[rpb.AuditRecord] = []
        self.batches: list[int] = []
        self.streams = 0
        self.acknowledging = asyncio.Event()
        self.acknowledging.set()
        self.arrived = asyncio.Event()
        self.breaks_before_ack = 0
        self.breaks_with = Reason.AUDIT_UNAVAILABLE
        self.withholds: Callable[[Any], bool] = lambda records: False
        self.refused: set[str] = set()
        self.refuses: Callable[[rpb.AuditRecord], bool] = lambda record: record.record_id in self.refused
        self.answers_per_record = True
        """False for a log that ends its stream for a refused record."""

    def add(self, server: grpc.aio.Server) -> None:
        audit_rpc.add_AuditServiceServicer_to_server(self, server)

    @property
    def ids(self) -> list[str]:
        return [record.record_id for record in self.records]

    def about(self, invocation_id: str) -> list[rpb.AuditRecord]:
        return [record for record in self.records if record.invocation_id == invocation_id]

    async def AppendRecords(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        self.streams += 1
        async for request in request_iterator:
            records = read(request)
            refused = [index for index, record in enumerate(records) if self.refuses(record)]
            partial = self.answers_per_record and request.return_partial_success
            if refused and not partial:
                await refuse(context, Reason.AUDIT_RECORD_INVALID)
            records = [record for index, record in enumerate(records) if index not in refused]
            self.batches.append(len(records))
            known = set(self.ids)
            self.records.extend({r.record_id: r for r in records if r.record_id not in known}.values())
            self.arrived.set()
            while self.withholds(records):  # noqa: ASYNC110  (a test changes its mind without telling)
                await asyncio.sleep(0.01)
            if self.breaks_before_ack:
                self.breaks_before_ack -= 1
                await refuse(context, self.breaks_with)
            await self.acknowledging.wait()
            refusals = [audit_pb.RecordRefusal(index=i, path="result_summary", rule="record.json") for i in refused]
            last = len(self.records) - 1
            yield audit_pb.AppendRecordsResponse(batch=request.batch, last_sequence=last, refused=refusals)


class RunnersPeer(runner_rpc.RunnerServiceServicer):
    """Keeps the announcements of executors by instance, under a lease that a test may shorten."""

    def __init__(self) -> None:
        self.announced: dict[str, runner_pb.AnnounceRunnersRequest] = {}
        self.announcements: asyncio.Queue[runner_pb.AnnounceRunnersRequest] = asyncio.Queue()
        self.lease = Duration(seconds=30)
        self.refusals: list[Reason] = []

    def add(self, server: grpc.aio.Server) -> None:
        runner_rpc.add_RunnerServiceServicer_to_server(self, server)

    async def AnnounceRunners(self, request: Any, context: Any) -> Any:
        if self.refusals:
            await refuse(context, self.refusals.pop(0))
        self.announced[request.instance] = request
        self.announcements.put_nowait(request)
        return runner_pb.AnnounceRunnersResponse(lease=self.lease)

    async def WithdrawRunners(self, request: Any, context: Any) -> Any:
        if self.announced[request.instance].process_id == request.process_id:
            del self.announced[request.instance]
        return runner_pb.WithdrawRunnersResponse()


class RegistryPeer(registry_rpc.RegistryServiceServicer):
    """A registry in memory: versions, their changes in order, and resume tokens that count them."""

    address: Address

    def __init__(self, *versions: vpb.ToolVersion) -> None:
        self.versions = {version.name: version for version in versions}
        self.changes: list[registry_pb.WatchToolsResponse] = []
        self.resumed_with: list[str] = []
        self.registered: list[str] = []
        self.forgets_tokens = False
        self.breaks_snapshots = False
        self.refusals: list[Reason] = []
        self.runners = RunnersPeer()
        self._changed = asyncio.Condition()
        self._broken = 0

    def add(self, server: grpc.aio.Server) -> None:
        registry_rpc.add_RegistryServiceServicer_to_server(self, server)
        self.runners.add(server)

    async def put(self, version: vpb.ToolVersion) -> None:
        self.versions[version.name] = version
        await self._announce(registry_pb.WatchToolsResponse(upserted=version))

    async def remove(self, name: str) -> None:
        del self.versions[name]
        await self._announce(registry_pb.WatchToolsResponse(removed=name))

    async def trust(self, trust: ToolTrust) -> None:
        await self._announce(registry_pb.WatchToolsResponse(trusts=ToolTrusts(tools=[trust])))

    async def health(self, health: VersionHealth) -> None:
        await self._announce(registry_pb.WatchToolsResponse(healths=VersionHealths(versions=[health])))

    async def heartbeat(self) -> None:
        await self._announce(registry_pb.WatchToolsResponse(heartbeat=registry_pb.Heartbeat()))

    async def break_streams(self) -> None:
        async with self._changed:
            self._broken += 1
            self._changed.notify_all()

    async def RegisterTool(self, request: Any, context: Any) -> Any:
        if self.refusals:
            await refuse(context, self.refusals.pop(0))
        version = registered(request.manifest)
        created = version.name not in self.versions
        self.registered.append(version.name)
        if created:
            await self.put(version)
        return registry_pb.RegisterToolResponse(version=version, created=created)

    async def WatchTools(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.resumed_with.append(request.resume_token)
        broken = self._broken
        position = int(request.resume_token or -1)
        if position < 0 or self.forgets_tokens:
            position = len(self.changes)
            for version in list(self.versions.values()):
                yield registry_pb.WatchToolsResponse(upserted=version)
                if self.breaks_snapshots:
                    await refuse(context, Reason.SERVICE_UNAVAILABLE)
            complete = registry_pb.SnapshotComplete()
            yield registry_pb.WatchToolsResponse(snapshot_complete=complete, resume_token=str(position))
        while True:
            async with self._changed:
                while len(self.changes) <= position and self._broken == broken:
                    await self._changed.wait()
            if self._broken != broken:
                await refuse(context, Reason.SERVICE_UNAVAILABLE)
            yield self.changes[position]
            position += 1

    async def _announce(self, change: registry_pb.WatchToolsResponse) -> None:
        async with self._changed:
            change.resume_token = str(len(self.changes) + 1)
            self.changes.append(change)
            self._changed.notify_all()


class AuthzPeer(authz_rpc.AuthzServiceServicer):
    """Policy that answers what a test tells it to; allows, cacheably, by default."""

    address: Address

    def __init__(self, signer: Any = None) -> None:
        self._signer = signer
        self.asked: list[Any] = []
        self.metadata: list[dict[str, Any]] = []
        self.deadlines: list[float] = []
        self.answering = asyncio.Event()
        self.answering.set()
        self.arrived = asyncio.Event()
        self.failure: Reason | None = None
        self.lifetime = 60.0
        self.invalidations = Invalidations()  # type: ignore[abstract]
        self.introspected: list[str] = []
        self.introspection = authz_pb.IntrospectTokenResponse(active=True)
        self.answer: Callable[[Any], dpb.Decision] = lambda facts: self.allow()

    def add(self, server: grpc.aio.Server) -> None:
        authz_rpc.add_AuthzServiceServicer_to_server(self, server)
        self.invalidations.add(server)

    def allow(self, **changes: Any) -> dpb.Decision:
        return self.decision(allow=dpb.Allow(), **changes)

    def deny(self, reason: Reason, **changes: Any) -> dpb.Decision:
        return self.decision(deny=dpb.Deny(reason=reason.value), **changes)  # type: ignore[arg-type]

    def decision(self, **changes: Any) -> dpb.Decision:
        until = Timestamp()
        until.FromMicroseconds(int((SystemClock().now().timestamp() + self.lifetime) * 1e6))
        fields = {
            "name": f"decisions/{new_id()}",
            "determining_policies": ["policy0"],
            "policy_set_version": "set-1",
            "mode": dpb.DECISION_MODE_ENFORCE,
            "cacheable": True,
            "expire_time": until,
            **changes,
        }
        return dpb.Decision(**fields)

    async def GetJwks(self, request: Any, context: Any) -> Any:
        return authz_pb.GetJwksResponse(jwks=await self._signer.fetch_jwks())

    async def IntrospectToken(self, request: Any, context: Any) -> Any:
        self.introspected.append(request.token)
        await self.answering.wait()
        return self.introspection

    async def Check(self, request: Any, context: Any) -> Any:
        self.asked.append(request.call)
        self.metadata.append(dict(context.invocation_metadata()))
        self.deadlines.append(context.time_remaining())
        self.arrived.set()
        await self.answering.wait()
        if self.failure is not None:
            await refuse(context, self.failure)
        return authz_pb.CheckResponse(decision=self.answer(request.call))


class ApprovalPeer(approval_rpc.ApprovalServiceServicer):
    """Tickets in memory, one for each call, in the state that a test puts them in."""

    address: Address

    def __init__(self) -> None:
        self.tickets: dict[str, tpb.Ticket] = {}
        self.redemptions: dict[str, list[str]] = {}
        self.looks = 0

    def add(self, server: grpc.aio.Server) -> None:
        approval_rpc.add_ApprovalServiceServicer_to_server(self, server)

    def state(self, ticket: str) -> str:
        return tpb.TicketState.Name(self.tickets[ticket].state).removeprefix("TICKET_STATE_")

    def put(self, ticket: str, state: str) -> None:
        self.tickets[ticket].state = tpb.TicketState.Value(f"TICKET_STATE_{state}")

    async def CreateTicket(self, request: Any, context: Any) -> Any:
        for ticket in self.tickets.values():
            if ticket.arguments_digest == request.arguments_digest and self.state(ticket.name) in (
                "PENDING",
                "APPROVED",
            ):
                return approval_pb.CreateTicketResponse(ticket=ticket)
        name = f"tickets/{new_id()}"
        ticket = tpb.Ticket(
            name=name, arguments_digest=request.arguments_digest, requester=request.requester, preview=b"{}"
        )
        ticket.expire_time.GetCurrentTime()
        self.tickets[name] = ticket
        self.put(name, "PENDING")
        return approval_pb.CreateTicketResponse(ticket=ticket)

    async def GetTicket(self, request: Any, context: Any) -> Any:
        self.looks += 1
        return approval_pb.GetTicketResponse(ticket=self.tickets[request.name])

    async def CancelTicket(self, request: Any, context: Any) -> Any:
        if self.state(request.name) not in ("PENDING", "APPROVED", "CANCELED"):
            await refuse(context, Reason.TICKET_CLOSED)
        self.put(request.name, "CANCELED")
        return approval_pb.CancelTicketResponse(ticket=self.tickets[request.name])

    async def RedeemTicket(self, request: Any, context: Any) -> Any:
        state, used = self.state(request.name), self.redemptions.setdefault(request.name, [])
        refusals = {
            "PENDING": Reason.APPROVAL_REQUIRED,
            "CANCELED": Reason.TICKET_CLOSED,
            "EXPIRED": Reason.TICKET_EXPIRED,
            "DENIED": Reason.APPROVAL_REJECTED,
            "AUTO_DENIED": Reason.APPROVAL_REJECTED,
        }
        if state in refusals:
            await refuse(context, refusals[state])
        if any(each != request.redemption_id for each in used):
            await refuse(context, Reason.TICKET_REDEEMED)
        if not request.validate_only:
            used.append(request.redemption_id)
            self.put(request.name, "REDEEMED")
        return approval_pb.RedeemTicketResponse(ticket=self.tickets[request.name])


def registered(manifest: Any, state: str = "AVAILABLE", **changes: Any) -> vpb.ToolVersion:
    """A manifest as the registry would hold it."""
    return vpb.ToolVersion(
        name=f"tools/{manifest.namespace}.{manifest.tool_id}/versions/{manifest.version}",
        manifest=manifest,
        digest=digest_bytes(manifest.SerializeToString(deterministic=True)),
        state=vpb.LifecycleState.Value(f"LIFECYCLE_STATE_{state}"),
        **changes,
    )
