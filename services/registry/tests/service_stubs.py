"""Stubs and calls for tests of lifecycle, namespaces and trust, and a fake audit service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from toolmesh.audit.v1 import usage_service_pb2 as usage_pb
from toolmesh.audit.v1 import usage_service_pb2_grpc as usage_rpc
from toolmesh.registry.v1 import lifecycle_service_pb2_grpc as lifecycle_rpc
from toolmesh.registry.v1 import namespace_service_pb2_grpc as namespace_rpc
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import tool_version_pb2
from toolmesh.registry.v1 import trust_service_pb2_grpc as trust_rpc

from libs.common.auth.tokens import TokenVerifier
from libs.common.rpc.chain import build_chain
from libs.common.rpc.policy import AS_PEER, Row
from libs.common.rpc.server import RpcServer, Service
from libs.common.runtime.settings import Address, ProcessSettings, load
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.registry.tests.calls import PATIENCE, bearer
from services.registry.tests.conftest import Replica

TOOL, ONE, TWO = "acme.find_order", "tools/acme.find_order/versions/1.0.0", "tools/acme.find_order/versions/2.0.0"


def lifecycle(replica: Replica, peer: str = "operator") -> Any:
    return replica.stub(peer, lifecycle_rpc.LifecycleServiceStub)


def namespaces(replica: Replica, peer: str = "operator") -> Any:
    return replica.stub(peer, namespace_rpc.NamespaceServiceStub)


def trust(replica: Replica, peer: str = "operator") -> Any:
    return replica.stub(peer, trust_rpc.TrustServiceStub)


async def register(
    replica: Replica, *manifests: Any, peer: str = "operator", token: str = "", draft: bool = False
) -> Any:
    """Register manifests and return the last version."""
    stub, answer = replica.stub(peer), None
    for manifest in manifests:
        answer = await stub.RegisterTool(
            pb.RegisterToolRequest(manifest=manifest, draft=draft),
            metadata=bearer(token) if token else None,
            timeout=PATIENCE,
        )
    return answer.version if answer else None


async def sweep_once(replica: Replica) -> None:
    """Sweep once; the replica's own first sweep may still hold the lock."""
    while True:
        if await replica.application.sweeper.sweep():
            return
        await asyncio.sleep(0.01)


def word(state: int) -> str:
    """Return the name of a state."""
    return tool_version_pb2.LifecycleState.Name(state).removeprefix("LIFECYCLE_STATE_").lower()  # type: ignore[arg-type]


@dataclass
class CountingAudit:
    """A fake audit service that returns the usage that the test sets."""

    address: Address
    answers: dict[str, usage_pb.GetToolUsageResponse] = field(default_factory=dict)
    """By name; other tools have no calls."""
    asked: list[usage_pb.GetToolUsageRequest] = field(default_factory=list)


@asynccontextmanager
async def counting_audit(
    signer: Any, process_environment: Callable[[str], dict[str, str]]
) -> AsyncIterator[CountingAudit]:
    """Serve usage over mutual TLS."""
    audit = CountingAudit(Address("127.0.0.1", 0))

    class Usage(usage_rpc.UsageServiceServicer):
        async def GetToolUsage(self, request: usage_pb.GetToolUsageRequest, context: Any) -> Any:
            audit.asked.append(request)
            return audit.answers.get(request.name, usage_pb.GetToolUsageResponse(name=request.name))

        async def BatchGetToolUsage(self, request: usage_pb.BatchGetToolUsageRequest, context: Any) -> Any:
            found = [await self.GetToolUsage(each, context) for each in request.requests]
            return usage_pb.BatchGetToolUsageResponse(usages=found)

    settings = load(ProcessSettings, process_environment("audit"))
    name = "toolmesh.audit.v1.UsageService"
    chain = build_chain(
        policy={f"/{name}/BatchGetToolUsage": Row({"registry": AS_PEER}, 2.0, True)},
        verifier=TokenVerifier(signer.fetch_jwks, issuer=settings.issuer, audience=settings.audience),
        trust_domain=settings.trust_domain,
        log=Log("test", level="error"),
        tracing=Tracing(),
        sample_ratio=0.0,
        max_concurrent_calls=10,
    )
    service = Service(name, lambda server: usage_rpc.add_UsageServiceServicer_to_server(Usage(), server))  # type: ignore[abstract]
    server = RpcServer(settings, chain, [service])
    await server.start()
    await server.set_ready(True)
    audit.address = Address("127.0.0.1", server.port)
    yield audit
    await server.drain()
