"""Fixtures of the audit service's tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import psycopg
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from toolmesh.authz.v1 import authz_service_pb2_grpc as authz_rpc

from libs.common.rpc.server import server_credentials
from libs.common.runtime.clock import Clock, SystemClock
from libs.common.runtime.settings import ProcessSettings, load
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.audit.adapters.log.writer import PostgresWriter
from services.audit.config import Settings
from services.audit.convert.log import ProtoSelfRecorder
from services.audit.domain.evidence.model import ShardLimits
from services.audit.domain.merkle.note import Origin
from services.audit.tests.replicas import Keys, Replica
from services.audit.wiring import build
from tests.harness.servers.issuer import Invalidations

QUIET = Log("test", level="error", descriptor=2)
NEVER = ShardLimits(10**9, 10**9)


def a_writer(url: str, limits: ShardLimits = NEVER, clock: Clock | None = None) -> PostgresWriter:
    """Return a writer that never closes a shard unless the test sets limits."""
    clock = clock or SystemClock()
    return PostgresWriter(
        url, QUIET, recorder=ProtoSelfRecorder(clock), clock=clock, limits=limits, origin=Origin("toolmesh.local")
    )


@pytest.fixture
def checkpoint_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture
def checkpoint_key_file(checkpoint_key: Ed25519PrivateKey, tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint.pem"
    path.write_bytes(
        checkpoint_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return path


@pytest.fixture
async def authz_port(signer: Any, process_environment: Callable[[str], dict[str, str]]) -> AsyncIterator[int]:
    """The port of a fake authz that answers GetJwks."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    authz_rpc.add_AuthzServiceServicer_to_server(Keys(signer), server)  # type: ignore[abstract]
    Invalidations().add(server)  # type: ignore[abstract]
    credentials = server_credentials(load(ProcessSettings, process_environment("authz")))
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    yield port
    await server.stop(None)


@pytest.fixture
def audit_environment(
    process_environment: Callable[[str], dict[str, str]],
    database: Callable[[str], str],
    checkpoint_key_file: Path,
    authz_port: int,
) -> dict[str, str]:
    """The environment of an audit process on a fresh database."""
    return {
        **process_environment("audit"),
        "TOOLMESH_DATABASE_URL": database("audit"),
        "TOOLMESH_AUTHZ_ADDRESS": f"127.0.0.1:{authz_port}",
        "TOOLMESH_CHECKPOINT_KEY": str(checkpoint_key_file),
    }


@pytest.fixture
async def start(audit_environment: dict[str, str], pki: Any) -> AsyncIterator[Callable[[], Awaitable[Replica]]]:
    """Return a function that starts one more replica on the same database."""
    replicas: list[Replica] = []

    async def start_replica() -> Replica:
        settings = load(Settings, audit_environment)
        application = await build(settings, QUIET, Tracing())
        await application.start()
        replicas.append(Replica(application, settings.database_url, pki))
        return replicas[-1]

    yield start_replica
    for replica in replicas:
        await replica.close()


@pytest.fixture
async def audit(start: Callable[[], Awaitable[Replica]]) -> Replica:
    """A running audit service."""
    return await start()


@pytest.fixture
async def log_url(database: Callable[[str], str]) -> str:
    """A database with an empty log."""
    return database("audit")


@pytest.fixture
def superuser(postgres_server: str) -> Callable[..., list[Any]]:
    """Return a function that runs statements as superuser, as an attacker with access to the disk could."""

    def run(url: str, *statements: str) -> list[Any]:
        name = url.rsplit("/", 1)[1]
        with psycopg.connect(
            f"{postgres_server}/{name}", autocommit=True, options="-c search_path=audit"
        ) as connection:
            cursors = [connection.execute(statement) for statement in statements]
            return cursors[-1].fetchall() if cursors[-1].description else []

    return run


@pytest.fixture
def audit_waiter() -> Callable[..., Awaitable[None]]:
    """Return a function that polls a condition."""

    async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  (there is no event to wait for)
                await asyncio.sleep(0.01)

    return until
