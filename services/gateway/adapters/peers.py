"""Stubs of the gateway's peers, on channels that pass on the caller's token, trace and deadline."""

from __future__ import annotations

from collections.abc import Mapping

import grpc.aio
from toolmesh.approval.v1.approval_service_pb2_grpc import ApprovalServiceStub
from toolmesh.audit.v1.audit_service_pb2_grpc import AuditServiceStub
from toolmesh.audit.v1.usage_service_pb2_grpc import UsageServiceStub
from toolmesh.authz.v1.authz_service_pb2_grpc import AuthzServiceStub
from toolmesh.authz.v1.token_service_pb2_grpc import TokenServiceStub
from toolmesh.executor.v1.executor_service_pb2_grpc import ExecutorServiceStub
from toolmesh.executor.v1.invocation_service_pb2_grpc import InvocationServiceStub
from toolmesh.registry.v1.discovery_service_pb2_grpc import DiscoveryServiceStub
from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceStub

from libs.authz_client.jwks import jwks_from
from libs.common.rpc.client import channel_to
from services.gateway.config import Settings

_READS = ("GetTool", "ListTools", "ResolveTool")


class Peers:
    """The channels and stubs. Reads are retried when a peer is unavailable; invocations are not."""

    def __init__(self, settings: Settings) -> None:
        executor = channel_to("executor", settings.executor_address, settings)
        registry = channel_to(
            "registry",
            settings.registry_address,
            settings,
            service="toolmesh.registry.v1.RegistryService",
            retry=_READS,
        )
        authz = channel_to(
            "authz",
            settings.authz_address,
            settings,
            service="toolmesh.authz.v1.AuthzService",
            retry=["GetJwks", "Check"],
        )
        audit = channel_to("audit", settings.audit_address, settings)
        approval = channel_to("approval", settings.approval_address, settings)
        self.channels: Mapping[str, grpc.aio.Channel] = {
            "executor": executor,
            "registry": registry,
            "authz": authz,
            "audit": audit,
            "approval": approval,
        }
        self.registry_changes = channel_to("registry", settings.registry_address, settings, for_callers=False)
        self.executor = ExecutorServiceStub(executor)
        self.invocations = InvocationServiceStub(executor)
        self.registry = RegistryServiceStub(registry)
        self.discovery = DiscoveryServiceStub(registry)
        self.authz = AuthzServiceStub(authz)
        self.tokens = TokenServiceStub(authz)
        self.audit = AuditServiceStub(audit)
        self.usage = UsageServiceStub(audit)
        self.approvals = ApprovalServiceStub(approval)
        self.fetch_jwks = jwks_from(authz, timeout=1.0)

    async def close(self) -> None:
        """Close every channel."""
        for channel in (*self.channels.values(), self.registry_changes):
            await channel.close()
