"""A token that is bound to a key or a certificate is worth nothing without the key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as authz_rpc
from toolmesh.authz.v1.capability_token_pb2 import Confirmation, ToolGrant
from toolmesh_sdk import AsyncClient, Client, ProofKey, ToolmeshError

from libs.common.auth.dpop import certificate_thumbprint
from tests.harness.clients.holder import Holder
from tests.harness.executors.replicas import envelope_of
from tests.harness.mesh import ALICE, Mesh, invoke

INVOKE = "/toolmesh.executor.v1.ExecutorService/Invoke"
ECHO: dict[str, Any] = {"tool": "echo", "arguments": {"text": "x"}}


@pytest.fixture(scope="module")
def operator(mesh: Mesh) -> Iterator[authz_rpc.AuthzServiceStub]:
    with mesh.direct_channel("authz", "operator") as channel:
        yield authz_rpc.AuthzServiceStub(channel)


def bound(operator: authz_rpc.AuthzServiceStub, **confirmation: str) -> str:
    request = authz_pb.IssueTokenRequest(
        subject=ALICE,
        tools=[ToolGrant(tool="*")],
        scopes=["tools:call", "tools:read"],
        confirmation=Confirmation(**confirmation),
    )
    return operator.IssueToken(request, timeout=10).token


@pytest.fixture
def holder() -> Holder:
    return Holder()


@pytest.fixture
def token(operator: authz_rpc.AuthzServiceStub, holder: Holder) -> str:
    return bound(operator, jwk_thumbprint=holder.thumbprint)


def over_http(mesh: Mesh, token: str, scheme: str, *proofs: str, method: str = "tools.invoke") -> tuple[int, str]:
    """Call through the edge; return the HTTP status and the code of the refusal, empty for a success."""
    headers = {"authorization": f"{scheme} {token}"} | ({"dpop": proofs[0]} if proofs else {})
    answer = mesh.rpc(method, ECHO if method == "tools.invoke" else {}, headers=headers)
    return answer.status_code, answer.json().get("error", {}).get("data", {}).get("code", "")


@pytest.mark.parametrize("scheme", ["DPoP", "Bearer"])
@pytest.mark.parametrize("method", ["tools.invoke", "tools.list"])
def test_over_http_through_the_edge(mesh: Mesh, holder: Holder, token: str, scheme: str, method: str) -> None:
    place = f"{mesh.url}/rpc"
    assert over_http(mesh, token, scheme, method=method) == (401, "E3214")
    assert over_http(mesh, token, scheme, Holder().proof(token, place), method=method) == (401, "E3214")
    assert over_http(mesh, token, scheme, holder.proof(token, f"{mesh.url}/other"), method=method) == (401, "E3214")
    assert over_http(mesh, token, scheme, holder.proof(token, "http://elsewhere.example/rpc")) == (401, "E3214")
    evil = {"authorization": f"{scheme} {token}", "dpop": holder.proof(token, "http://evil/rpc"), "host": "evil"}
    assert mesh.rpc(method, ECHO if method == "tools.invoke" else {}, headers=evil).status_code == 401
    good = holder.proof(token, place)
    assert over_http(mesh, token, scheme, good, method=method) == (200, "")
    assert over_http(mesh, token, scheme, good, method=method) == (401, "E3214")


def grpc_problem(channel: grpc.Channel, token: str, *metadata: tuple[str, str], scheme: str = "DPoP") -> str:
    """Call; return the problem of the proof, empty for a success."""
    credential = [("authorization", f"{scheme} {token}"), *metadata]
    try:
        invoke(channel, "echo", b'{"text":"x"}', metadata=credential)
    except grpc.RpcError as error:
        found = envelope_of(error)
        return found.metadata["problem"] if found.code == "E3214" else found.code
    return ""


def test_over_grpc_through_the_edge(mesh: Mesh, holder: Holder, token: str) -> None:
    place = f"http://{mesh.edge}{INVOKE}"
    with mesh.edge_channel() as channel:
        assert grpc_problem(channel, token) == "missing"
        assert grpc_problem(channel, token, ("dpop", holder.proof(token, f"http://elsewhere{INVOKE}"))) == "htu"
        # Whatever a caller says of the address it used, the edge knows better.
        lie = (("dpop", holder.proof(token, f"http://elsewhere{INVOKE}")), ("x-toolmesh-authority", "elsewhere"))
        assert grpc_problem(channel, token, *lie) == "htu"
        good = ("dpop", holder.proof(token, place))
        assert grpc_problem(channel, token, good) == ""
        assert grpc_problem(channel, token, good) == "replay"
        assert grpc_problem(channel, token, ("dpop", holder.proof(token, place)), scheme="Bearer") == ""


def test_over_grpc_straight_to_a_service(mesh: Mesh, holder: Holder, token: str) -> None:
    with mesh.direct_channel("executor") as channel:
        assert grpc_problem(channel, token) == "missing"
        assert grpc_problem(channel, token, ("dpop", holder.proof(token, f"https://executor{INVOKE}"))) == ""


def test_a_certificate_counts_on_its_own_connection_and_nowhere_else(
    mesh: Mesh, operator: authz_rpc.AuthzServiceStub
) -> None:
    own = certificate_thumbprint(Path(mesh.runtime["orchestrator"]["cert"]).read_bytes())
    token = bound(operator, certificate_thumbprint=own)
    with mesh.direct_channel("executor") as channel:
        assert grpc_problem(channel, token, scheme="Bearer") == ""
    with mesh.edge_channel() as channel:
        assert grpc_problem(channel, token, scheme="Bearer") == "certificate"
    assert over_http(mesh, token, "Bearer") == (401, "E3214")


async def test_the_client_library_proves_each_call(mesh: Mesh, operator: authz_rpc.AuthzServiceStub) -> None:
    key = ProofKey()
    token = bound(operator, jwk_thumbprint=key.thumbprint)
    with Client(mesh.url, token=token, proof_key=key) as client:
        for text in ("a", "b"):
            assert client.call("echo", {"text": text}).content == {"text": text}
        assert list(client.list_tools())
    async with AsyncClient(mesh.url, token=token, proof_key=key) as client:
        assert (await client.call("echo", {"text": "c"})).content == {"text": "c"}
    with Client(mesh.url, token=token, proof_key=ProofKey()) as client, pytest.raises(ToolmeshError) as caught:
        client.call("echo", {"text": "d"})
    assert caught.value.code == "E3214"
