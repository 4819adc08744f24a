"""Fixtures of the registry: its real wiring with mutual TLS, PostgreSQL and Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as authz_rpc
from toolmesh.registry.v1 import registry_service_pb2_grpc as rpc

from libs.common.auth.peers import SERVICES
from libs.common.auth.tokens import TokenVerifier
from libs.common.call_context import serving
from libs.common.rpc.chain import build_chain
from libs.common.rpc.client import channel_to
from libs.common.rpc.policy import AS_PEER, Row, Tenancy, for_caller
from libs.common.rpc.server import RpcServer, Service
from libs.common.runtime.settings import Address, ProcessSettings, load
from libs.common.sql.engine import engine_for
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.registry.config import Settings
from services.registry.tests.rpc.announcing import announce_every_runner
from services.registry.wiring import RegistryApplication, build
from tests.harness.servers.issuer import Invalidations, accepts_every_token

QUIET = Log("test", level="error")
# No server listens there.
DEAD_BUS = "redis://127.0.0.1:1/0"


def _usability(tags: Iterable[str]) -> Any:
    if "barred" in tags:
        return authz_pb.USABILITY_DENIED
    return authz_pb.USABILITY_NEEDS_APPROVAL if "approved" in tags else authz_pb.USABILITY_ALLOWED


@pytest.fixture
async def authz_address(signer: Any, process_environment: Callable[[str], dict[str, str]]) -> AsyncIterator[Address]:
    """An authz that serves keys over mutual TLS, revokes nothing, denies tools with the tag `barred`, and
    requires an approval for tools with the tag `approved`."""

    class Keys(authz_rpc.AuthzServiceServicer):
        async def GetJwks(self, request: Any, context: Any) -> Any:
            return authz_pb.GetJwksResponse(jwks=await signer.fetch_jwks())

        async def FilterTools(self, request: Any, context: Any) -> Any:
            assert serving().caller.subject
            return authz_pb.FilterToolsResponse(tools=[_usability(tool.tags) for tool in request.tools])

        IntrospectToken = accepts_every_token

    settings = load(ProcessSettings, process_environment("authz"))
    name = "toolmesh.authz.v1.AuthzService"
    chain = build_chain(
        policy={
            f"/{name}/GetJwks": Row(dict.fromkeys(SERVICES, AS_PEER), 2.0, True),
            f"/{name}/FilterTools": Row({"registry": for_caller()}, 2.0, True, Tenancy.OWN),
            f"/{name}/IntrospectToken": Row(dict.fromkeys(SERVICES, AS_PEER), 2.0, True),
            "/toolmesh.authz.v1.TokenService/WatchInvalidations": Row(dict.fromkeys(SERVICES, AS_PEER), None, True),
        },
        verifier=TokenVerifier(signer.fetch_jwks, issuer=settings.issuer, audience=settings.audience),
        trust_domain=settings.trust_domain,
        log=QUIET,
        tracing=Tracing(),
        sample_ratio=0.0,
        max_concurrent_calls=10,
    )
    service = Service(name, lambda server: authz_rpc.add_AuthzServiceServicer_to_server(Keys(), server))  # type: ignore[abstract]
    server = RpcServer(settings, chain, [service, Service("toolmesh.authz.v1.TokenService", Invalidations().add)])  # type: ignore[abstract]
    await server.start()
    await server.set_ready(True)
    yield Address("127.0.0.1", server.port)
    await server.drain()


@dataclass
class Replica:
    """A running registry with stubs for any peer name."""

    application: RegistryApplication
    pki: Any
    channels: list[grpc.aio.Channel] = field(default_factory=list)

    def stub(self, peer: str = "operator", kind: Any = rpc.RegistryServiceStub) -> Any:
        """Return a stub of this kind with a certificate of the peer."""
        identity = self.pki.of(peer)
        files = SimpleNamespace(tls_cert=identity.cert, tls_key=identity.key, tls_ca=self.pki.ca)
        self.channels.append(channel_to("registry", Address("127.0.0.1", self.application.server.port), files))
        return kind(self.channels[-1])

    async def stop(self) -> None:
        """Close the stubs and stop the registry."""
        for channel in self.channels:
            await channel.close()
        await self.application.stop()


Start = Callable[..., Awaitable[Replica]]


@pytest.fixture
def database_url(database: Callable[[str], str]) -> str:
    """A fresh database that all replicas of a test share."""
    return database("registry")


@pytest.fixture
async def start(
    pki: Any,
    process_environment: Callable[[str], dict[str, str]],
    database_url: str,
    valkey_url: str,
    authz_address: Address,
) -> AsyncIterator[Start]:
    """Return a function that starts one more replica on the same database."""
    replicas: list[Replica] = []

    async def one(
        *,
        redis_url: str = valkey_url,
        poll_seconds: float = 0.05,
        sweep_seconds: float = 3600.0,
        settle_seconds: float = 3600.0,
        announced: bool = True,
        **more: str,
    ) -> Replica:
        environment = {
            **process_environment("registry"),
            "TOOLMESH_DATABASE_URL": database_url,
            "TOOLMESH_REDIS_URL": redis_url,
            "TOOLMESH_AUTHZ_ADDRESS": str(authz_address),
            **more,
        }
        application = await build(
            load(Settings, environment),
            QUIET,
            Tracing(),
            poll_seconds=poll_seconds,
            sweep_seconds=sweep_seconds,
            settle_seconds=settle_seconds,
        )
        await application.start()
        if announced:
            await announce_every_runner(database_url)
        replicas.append(Replica(application, pki))
        return replicas[-1]

    yield one
    for replica in replicas:
        await replica.stop()


@pytest.fixture
async def registry(start: Start) -> Replica:
    """One running registry."""
    return await start()


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    """The registry's database, migrated to the newest revision."""
    made = engine_for(database_url, schema="registry")
    yield made
    await made.dispose()
