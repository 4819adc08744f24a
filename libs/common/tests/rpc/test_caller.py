"""Which caller stands behind a call: bound tokens are proved where callers arrive, and streams end with their token."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as rpc

from libs.common.auth.dpop import certificate_thumbprint, encoded
from libs.common.auth.revocations import RevocationView, Revoked
from libs.common.auth.tokens import CLOCK_SKEW, TokenVerifier
from libs.common.errors import Reason
from libs.common.rpc.application import RpcApplication
from libs.common.rpc.client import channel_to
from libs.common.rpc.policy import Row, Tenancy, for_caller
from libs.common.rpc.server import Service
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.clock import SystemClock
from libs.common.runtime.settings import Address, ProcessSettings, load
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from libs.common.tests.auth.test_dpop import Holder

PREFIX = "/toolmesh.audit.v1.AuditService/"
PATH = PREFIX + "GetCheckpoint"
MOST_CALLS = 5
PEERS = dict.fromkeys(("edge", "orchestrator", "gateway"), for_caller())

# Methods of other tenancies are not served: a caller that the chain admits gets METHOD_NOT_FOUND.
POLICY = {
    PATH: Row(PEERS, 5.0, True),
    PREFIX + "WatchRecords": Row(PEERS, None, True),
    PREFIX + "GetRecord": Row(PEERS, 5.0, True, Tenancy.OWN),
    PREFIX + "QueryRecords": Row(PEERS, 5.0, True, Tenancy.SHARED),
    PREFIX + "ExportRecords": Row(PEERS, None, True, Tenancy.MESH_WIDE),
}


class Handlers(rpc.AuditServiceServicer):
    """Answers one call, and holds one stream open."""

    async def GetCheckpoint(self, request: Any, context: Any) -> Any:
        return pb.GetCheckpointResponse()

    async def WatchRecords(self, request: Any, context: Any) -> AsyncIterator[Any]:
        yield pb.WatchRecordsResponse()
        await asyncio.Event().wait()


class Mesh:
    """A server, and calls to it under various names."""

    def __init__(self, application: RpcApplication, view: RevocationView, pki: Any) -> None:
        self.application, self.view, self._pki = application, view, pki
        self.channels: list[grpc.aio.Channel] = []

    def stub(self, name: str) -> Any:
        identity = self._pki.of(name)
        files = SimpleNamespace(tls_cert=identity.cert, tls_key=identity.key, tls_ca=self._pki.ca)
        self.channels.append(channel_to("audit", Address("127.0.0.1", self.application.server.port), files))
        return rpc.AuditServiceStub(self.channels[-1])

    async def call(self, peer: str, authorization: str, *more: tuple[str, str]) -> str:
        """Make a call; return the problem that its proof has, empty for none."""
        metadata = (("authorization", authorization), *more)
        try:
            await self.stub(peer).GetCheckpoint(pb.GetCheckpointRequest(), metadata=metadata)
        except grpc.aio.AioRpcError as error:
            found = from_rpc_error(error)
            assert found.reason is Reason.TOKEN_PROOF_INVALID
            return found.metadata["problem"]
        return ""


@pytest.fixture
async def mesh(pki: Any, signer: Any, process_environment: Callable[[str], dict[str, str]]) -> AsyncIterator[Mesh]:
    own = {"TOOLMESH_MAX_CONCURRENT_CALLS": str(MOST_CALLS), "TOOLMESH_PUBLIC_ORIGINS": "https://mesh.example"}
    settings = load(ProcessSettings, {**process_environment("audit"), **own})
    view = RevocationView(SystemClock())
    view.apply((), policy_set_version="", snapshot=True)
    application = RpcApplication(
        settings,
        Log("test", level="error"),
        Tracing(),
        policy=POLICY,
        verifier=TokenVerifier(signer.fetch_jwks, issuer=settings.issuer, audience=settings.audience, revocations=view),
        services=[
            Service("toolmesh.audit.v1.AuditService", lambda s: rpc.add_AuditServiceServicer_to_server(Handlers(), s))  # type: ignore[abstract]
        ],
    )
    await application.start()
    made = Mesh(application, view, pki)
    yield made
    for channel in made.channels:
        await channel.close()
    await application.stop()


def proof(holder: Holder, token: str, place: str) -> tuple[str, str]:
    ath = encoded(hashlib.sha256(token.encode()).digest())
    return "dpop", holder.proof(htu=place + PATH, ath=ath, iat=int(time.time()))


async def test_a_token_that_is_bound_to_a_key_needs_a_proof_under_either_scheme(mesh: Mesh, signer: Any) -> None:
    holder = Holder()
    token = signer.mint(cnf={"jkt": holder.thumbprint})
    for scheme in ("DPoP", "Bearer"):
        assert await mesh.call("orchestrator", f"{scheme} {token}") == "missing"
        assert await mesh.call("orchestrator", f"{scheme} {token}", proof(holder, token, "https://audit")) == ""
    assert await mesh.call("orchestrator", f"DPoP {token}", proof(Holder(), token, "https://audit")) == "key"
    again = proof(holder, token, "https://audit")
    assert await mesh.call("orchestrator", f"DPoP {token}", again) == ""
    assert await mesh.call("orchestrator", f"DPoP {token}", again) == "replay"
    two = (proof(holder, token, "https://audit"), proof(holder, token, "https://audit"))
    assert await mesh.call("orchestrator", f"DPoP {token}", *two) == "several"


async def test_a_bearer_token_proves_nothing_and_need_not(mesh: Mesh, signer: Any) -> None:
    assert await mesh.call("orchestrator", f"Bearer {signer.mint()}") == ""
    assert await mesh.call("orchestrator", f"DPoP {signer.mint()}") == "confirmation"


async def test_through_the_edge_a_proof_must_name_an_origin_of_the_mesh(mesh: Mesh, signer: Any) -> None:
    holder = Holder()
    token = signer.mint(cnf={"jkt": holder.thumbprint})
    claimed = (("x-toolmesh-authority", "other.example"), ("x-forwarded-proto", "https"))
    good, other = "https://mesh.example", "https://other.example"
    assert await mesh.call("edge", f"DPoP {token}", proof(holder, token, good), *claimed) == ""
    assert await mesh.call("edge", f"DPoP {token}", proof(holder, token, other), *claimed) == "htu"
    assert await mesh.call("edge", f"DPoP {token}", proof(holder, token, "http://mesh.example")) == "htu"
    assert await mesh.call("orchestrator", f"DPoP {token}", proof(holder, token, other)) == ""


async def test_a_service_of_the_mesh_vouches_for_the_proof_that_it_saw(mesh: Mesh, signer: Any) -> None:
    token = signer.mint(cnf={"jkt": Holder().thumbprint})
    assert await mesh.call("gateway", f"Bearer {token}") == ""


async def test_a_token_that_is_bound_to_a_certificate_needs_that_connection(mesh: Mesh, signer: Any, pki: Any) -> None:
    own = certificate_thumbprint(pki.of("orchestrator").cert.read_bytes())
    edges = certificate_thumbprint(pki.of("edge").cert.read_bytes())
    assert await mesh.call("orchestrator", f"Bearer {signer.mint(cnf={'x5t#S256': own})}") == ""
    assert await mesh.call("orchestrator", f"Bearer {signer.mint(cnf={'x5t#S256': edges})}") == "certificate"
    # The edge's certificate says nothing about the edge's callers.
    assert await mesh.call("edge", f"Bearer {signer.mint(cnf={'x5t#S256': edges})}") == "certificate"


async def test_an_open_stream_ends_with_its_token_and_others_stay_open(mesh: Mesh, signer: Any) -> None:
    stub = mesh.stub("edge")
    ending, lasting = (
        stub.WatchRecords(pb.WatchRecordsRequest(), metadata=(("authorization", f"Bearer {token}"),))
        for token in (signer.mint(exp=int(time.time()) - int(CLOCK_SKEW) + 2), signer.mint())
    )
    for stream in (ending, lasting):
        await stream.read()
    async with asyncio.timeout(20):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ending.read()
    assert from_rpc_error(caught.value).reason is Reason.TOKEN_EXPIRED
    assert not lasting.done()
    lasting.cancel()


async def test_an_open_stream_ends_when_its_token_is_revoked_and_others_stay_open(mesh: Mesh, signer: Any) -> None:
    stub = mesh.stub("edge")
    lost, kept = (
        stub.WatchRecords(pb.WatchRecordsRequest(), metadata=(("authorization", f"Bearer {signer.mint(jti=name)}"),))
        for name in ("lost", "kept")
    )
    for stream in (lost, kept):
        await stream.read()
    mesh.view.apply([Revoked("token", "lost", 0, 1e12)], policy_set_version="", snapshot=False)
    async with asyncio.timeout(10):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await lost.read()
    assert from_rpc_error(caught.value).reason is Reason.TOKEN_REVOKED
    assert not kept.done()
    kept.cancel()


async def test_a_stream_with_a_deadline_holds_no_place_either(mesh: Mesh, signer: Any) -> None:
    token = (("authorization", f"Bearer {signer.mint()}"),)
    stub = mesh.stub("edge")
    streams = [stub.WatchRecords(pb.WatchRecordsRequest(), timeout=600, metadata=token) for _ in range(MOST_CALLS)]
    for stream in streams:
        await stream.read()
    await stub.GetCheckpoint(pb.GetCheckpointRequest(), timeout=20, metadata=token)
    for stream in streams:
        stream.cancel()


async def test_a_stream_ends_at_the_deadline_that_it_was_given(mesh: Mesh, signer: Any) -> None:
    token = (("authorization", f"Bearer {signer.mint()}"),)
    stream = mesh.stub("edge").WatchRecords(pb.WatchRecordsRequest(), timeout=0.5, metadata=token)
    await stream.read()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert from_rpc_error(caught.value).reason is Reason.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    ("method", "admitted"),
    [("GetCheckpoint", False), ("GetRecord", True), ("QueryRecords", True), ("ExportRecords", False)],
)
@pytest.mark.parametrize("tenant", ["", "acme"])
async def test_a_caller_of_a_tenant_is_admitted_only_where_the_row_says_what_it_may_see(
    mesh: Mesh, signer: Any, method: str, admitted: bool, tenant: str
) -> None:
    metadata = (("authorization", f"Bearer {signer.mint(tenant=tenant)}"),)
    call = getattr(mesh.stub("edge"), method)(getattr(pb, f"{method}Request")(), metadata=metadata)
    reason = None
    try:
        await (call.read() if hasattr(call, "read") else call)
    except grpc.aio.AioRpcError as error:
        reason = from_rpc_error(error).reason
    assert (reason is Reason.AUTHORITY_EXCEEDED) == (bool(tenant) and not admitted)
