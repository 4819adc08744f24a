"""A running approval service with real PostgreSQL, mutual TLS and tokens, and a manual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.approval.v1 import approval_service_pb2_grpc as rpc
from toolmesh.authz.v1 import authz_service_pb2, authz_service_pb2_grpc

from libs.common.auth.tokens import TokenVerifier
from libs.common.rpc.chain import build_chain
from libs.common.rpc.client import channel_to
from libs.common.rpc.policy import AS_PEER, Row
from libs.common.rpc.server import RpcServer, Service
from libs.common.runtime.settings import Address, ProcessSettings, load
from libs.common.sql.engine import engine_for
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from libs.common.testing.clock import ManualClock
from services.approval.adapters.postgres_tickets import PostgresTickets
from services.approval.config import Settings
from services.approval.wiring import compose
from tests.harness.issuer import Invalidations, accepts_every_token

Environment = Callable[[str], dict[str, str]]


class Authz(authz_service_pb2_grpc.AuthzServiceServicer):
    """Serves the public keys of the test tokens."""

    def __init__(self, signer: Any) -> None:
        self._signer = signer

    async def GetJwks(self, request: Any, context: Any) -> Any:
        return authz_service_pb2.GetJwksResponse(jwks=await self._signer.fetch_jwks())

    IntrospectToken = accepts_every_token


@pytest.fixture
async def authz(process_environment: Environment, signer: Any) -> AsyncIterator[RpcServer]:
    """A token issuer with the RPCs that approval needs."""
    settings = load(ProcessSettings, {**process_environment("authz"), "TOOLMESH_DRAIN_SECONDS": "0"})
    chain = build_chain(
        policy={
            "/toolmesh.authz.v1.AuthzService/GetJwks": Row({"*": AS_PEER}, 2.0, True),
            "/toolmesh.authz.v1.AuthzService/IntrospectToken": Row({"*": AS_PEER}, 2.0, True),
            "/toolmesh.authz.v1.TokenService/WatchInvalidations": Row({"*": AS_PEER}, None, True),
        },
        verifier=TokenVerifier(signer.fetch_jwks, issuer=settings.issuer, audience=settings.audience),
        trust_domain=settings.trust_domain,
        log=Log("authz", level="error", descriptor=2),
        tracing=Tracing(),
        sample_ratio=0.0,
        max_concurrent_calls=100,
    )
    handlers = Authz(signer)  # type: ignore[abstract]  # the other RPCs keep the stubs' answer: unimplemented
    service = Service(
        "toolmesh.authz.v1.AuthzService",
        lambda s: authz_service_pb2_grpc.add_AuthzServiceServicer_to_server(handlers, s),
    )
    server = RpcServer(settings, chain, [service, Service("toolmesh.authz.v1.TokenService", Invalidations().add)])  # type: ignore[abstract]
    await server.start()
    await server.set_ready(True)
    yield server
    await server.drain()


@pytest.fixture
def environment(process_environment: Environment, database: Callable[[str], str], authz: RpcServer) -> dict[str, str]:
    """The environment of an approval process with its own database."""
    return {
        **process_environment("approval"),
        "TOOLMESH_DATABASE_URL": database("approval"),
        "TOOLMESH_AUTHZ_ADDRESS": f"127.0.0.1:{authz.port}",
    }


@pytest.fixture
def stub_to(pki: Any) -> Callable[[str, int], Any]:
    """Return a function that makes a stub with the certificate of one mesh name."""

    def make(name: str, port: int) -> tuple[Any, grpc.aio.Channel]:
        identity = pki.of(name)
        files = SimpleNamespace(tls_cert=identity.cert, tls_key=identity.key, tls_ca=pki.ca)
        channel = channel_to("approval", Address("127.0.0.1", port), files)
        return rpc.ApprovalServiceStub(channel), channel

    return make


@pytest.fixture
async def service(environment: dict[str, str], stub_to: Any) -> AsyncIterator[Any]:
    """The service with a manual clock, and stubs for its callers."""
    clock = ManualClock()
    log = Log("approval", level="error", descriptor=2)
    application = compose(load(Settings, environment), log, Tracing(), clock)
    await application.start()
    channels: list[grpc.aio.Channel] = []

    def stub(name: str) -> Any:
        made, channel = stub_to(name, application.server.port)
        channels.append(channel)
        return made

    yield SimpleNamespace(stub=stub, clock=clock, application=application)
    for channel in channels:
        await channel.close()
    await application.stop()


@pytest.fixture
async def engine(database: Callable[[str], str]) -> AsyncIterator[AsyncEngine]:
    """A database with the newest schema."""
    made = engine_for(database("approval"), schema="approval")
    yield made
    await made.dispose()


@pytest.fixture
def postgres_tickets(engine: AsyncEngine) -> PostgresTickets:
    """The store on a real database."""
    return PostgresTickets(engine)
