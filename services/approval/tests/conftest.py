"""A running approval service with real PostgreSQL, mutual TLS and tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc.aio
import orjson
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.approval.v1 import approval_service_pb2_grpc as rpc
from toolmesh.authz.v1 import authz_service_pb2, authz_service_pb2_grpc

from libs.common.auth.tokens import TokenVerifier
from libs.common.rpc.chain import build_chain
from libs.common.rpc.client import channel_to
from libs.common.rpc.policy import AS_PEER, Row
from libs.common.rpc.server import RpcServer, Service
from libs.common.runtime.settings import Address, ProcessSettings, load
from libs.common.sql.engine import engine_for, transaction
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.approval.config import Settings
from services.approval.wiring import build
from tests.harness.servers.issuer import Invalidations

Environment = Callable[[str], dict[str, str]]


class Authz(authz_service_pb2_grpc.AuthzServiceServicer):
    """Serves the public keys of the test tokens, and refuses some of them."""

    def __init__(self, signer: Any) -> None:
        self._signer = signer
        self.inactive: set[str] = set()

    async def GetJwks(self, request: Any, context: Any) -> Any:
        return authz_service_pb2.GetJwksResponse(jwks=await self._signer.fetch_jwks())

    async def IntrospectToken(self, request: Any, context: Any) -> Any:
        return authz_service_pb2.IntrospectTokenResponse(active=request.token not in self.inactive)


@pytest.fixture
async def authz(process_environment: Environment, signer: Any) -> AsyncIterator[Any]:
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
    invalidations = Invalidations()  # type: ignore[abstract]
    server = RpcServer(settings, chain, [service, Service("toolmesh.authz.v1.TokenService", invalidations.add)])
    await server.start()
    await server.set_ready(True)
    yield SimpleNamespace(port=server.port, inactive=handlers.inactive, invalidations=invalidations)
    await server.drain()


@pytest.fixture
def environment(
    process_environment: Environment, database: Callable[[str], str], authz: Any, tmp_path: Path
) -> dict[str, str]:
    """The environment of an approval process with its own database, and no audit log: records wait in the outbox."""
    rules = tmp_path / "rules.json"
    rules.write_text('{"break_glass_groups": ["oncall"]}')
    return {
        **process_environment("approval"),
        "TOOLMESH_DATABASE_URL": database("approval"),
        "TOOLMESH_AUTHZ_ADDRESS": f"127.0.0.1:{authz.port}",
        "TOOLMESH_AUDIT_ADDRESS": "127.0.0.1:9",
        "TOOLMESH_APPROVAL_RULES": str(rules),
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
async def service(environment: dict[str, str], stub_to: Any, engine: AsyncEngine, authz: Any) -> AsyncIterator[Any]:
    """The service, stubs for its callers, and its database."""
    application = await build(load(Settings, environment), Log("approval", level="error", descriptor=2), Tracing())
    await application.start()
    channels: list[grpc.aio.Channel] = []

    def stub(name: str) -> Any:
        made, channel = stub_to(name, application.server.port)
        channels.append(channel)
        return made

    async def age(name: str, seconds: float) -> None:
        """Make a ticket older, as if so much time had passed."""
        columns = ("create_time", "expire_time", "next_time", "approval_expire_time")
        shifted = ", ".join(f"{column} = {column} - {seconds} * interval '1 second'" for column in columns)
        times = f"array(select t - {seconds} * interval '1 second' from unnest(escalate_times) t)"  # noqa: S608
        async with transaction(engine) as connection:
            shift = text(f"update tickets set {shifted}, escalate_times = {times} where ticket_id = :id")  # noqa: S608
            await connection.execute(shift, {"id": name.removeprefix("tickets/")})

    async def acts(name: str) -> list[dict[str, Any]]:
        """Return the audit records of a ticket, in order."""
        async with transaction(engine) as connection:
            rows = await connection.execute(text("select form from act_outbox order by sequence"))
            forms = [orjson.loads(row.form) for row in rows]
        return [form for form in forms if form["ticket"] == name]

    yield SimpleNamespace(stub=stub, age=age, acts=acts, application=application, authz=authz)
    for channel in channels:
        await channel.close()
    await application.stop()


@pytest.fixture
async def engine(database: Callable[[str], str], environment: dict[str, str]) -> AsyncIterator[AsyncEngine]:
    """The database of the service."""
    made = engine_for(environment["TOOLMESH_DATABASE_URL"], schema="approval")
    yield made
    await made.dispose()
