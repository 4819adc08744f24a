"""Signing keys and a running authz with real mutual TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as rpc
from toolmesh.authz.v1.capability_token_pb2 import ToolGrant

from libs.common.rpc.application import RpcApplication
from libs.common.rpc.client import channel_to
from libs.common.runtime.settings import Address, load
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from libs.common.testing.clock import ManualClock
from services.authz.config import Settings
from services.authz.wiring import POLICIES, compose

ALICE = "did:web:toolmesh.local:users:alice"
FIRST, SECOND, THIRD = "20260101T000000Z.pem", "20260201T000000Z.pem", "20260301T000000Z.pem"


def rsa_pem(bits: int = 2048) -> bytes:
    """Make a key and return it as an unencrypted PEM."""
    key = rsa.generate_private_key(65537, bits)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.fixture(scope="session")
def pems() -> tuple[bytes, bytes, bytes]:
    """Three keys."""
    return rsa_pem(), rsa_pem(), rsa_pem()


@pytest.fixture
def folder(tmp_path: Path, pems: tuple[bytes, ...]) -> Path:
    """A folder with one signing key."""
    path = tmp_path / "keys"
    path.mkdir()
    (path / FIRST).write_bytes(pems[0])
    return path


@pytest.fixture
def clock() -> ManualClock:
    """A manual clock that starts now, because verifiers use the system clock."""
    return ManualClock(datetime.now(UTC))


@pytest.fixture
def quiet() -> Log:
    """A log that writes only errors."""
    return Log("authz", level="error")


@dataclass
class Mesh:
    """A running authz with clients."""

    pki: Any
    application: RpcApplication
    clock: ManualClock
    folder: Path
    database_url: str
    _stack: AsyncExitStack
    _stubs: dict[str, Any] = field(default_factory=dict)

    def channel(self, peer: str) -> grpc.aio.Channel:
        """Open a channel with the certificate of this peer."""
        identity = self.pki.of(peer)
        files = SimpleNamespace(tls_cert=identity.cert, tls_key=identity.key, tls_ca=self.pki.ca)
        channel = channel_to("authz", Address("127.0.0.1", self.application.server.port), files)
        self._stack.push_async_callback(channel.close)
        return channel

    def stub(self, peer: str) -> Any:
        """Return the stub of this peer."""
        if peer not in self._stubs:
            self._stubs[peer] = rpc.AuthzServiceStub(self.channel(peer))
        return self._stubs[peer]

    async def mint(self, **changes: Any) -> pb.IssueTokenResponse:
        """Mint a token that is good for everything unless `changes` narrow it."""
        asked = {"subject": ALICE, "tools": [ToolGrant(tool="*")], "scopes": ["tools:call"], **changes}
        return await self.stub("operator").IssueToken(pb.IssueTokenRequest(**asked))  # type: ignore[no-any-return]

    async def introspect(self, token: str) -> pb.IntrospectTokenResponse:
        """Introspect a token."""
        request = pb.IntrospectTokenRequest(token=token)
        return await self.stub("executor").IntrospectToken(request)  # type: ignore[no-any-return]

    async def check(self, token: str, peer: str = "executor", **changes: Any) -> Any:
        """Ask about a harmless call, unless `changes` make it another."""
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        request = pb.CheckRequest(call=pb.CallFacts(**call_in_question(**changes)))
        return (await self.stub(peer).Check(request, metadata=metadata)).decision


def call_in_question(**changes: Any) -> dict[str, Any]:
    """Return the facts of a harmless call, with changes."""
    return {
        "tool_version": "tools/core.echo/versions/1.0.0",
        "tool_digest": "sha256:00",
        "mutation_class": "read_only",
        "publisher_verified": True,
        **changes,
    }


@pytest.fixture
async def start(
    pki: Any,
    clock: ManualClock,
    folder: Path,
    quiet: Log,
    database: Callable[[str], str],
    process_environment: Callable[[str], dict[str, str]],
) -> AsyncIterator[Callable[..., Any]]:
    """Return a factory of running servers: `await start(policies=..., TOOLMESH_ENVIRONMENT=...)`."""
    async with AsyncExitStack() as stack:

        async def begin(*, policies: Path = POLICIES, **environment: str) -> Mesh:
            url = database("authz")
            own = {"TOOLMESH_DATABASE_URL": url, "TOOLMESH_SIGNING_KEYS": str(folder)}
            settings = load(Settings, process_environment("authz") | own | environment)
            application = compose(settings, quiet, Tracing(), clock=clock, policies=policies)
            await application.start()
            stack.push_async_callback(application.stop)
            return Mesh(pki, application, clock, folder, url, stack)

        yield begin


@pytest.fixture
async def mesh(start: Callable[..., Any]) -> Any:
    """A running authz with the shipped policies."""
    return await start()
