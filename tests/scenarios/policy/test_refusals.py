"""Callers without authority are refused with the right code, at every entrance."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from google.rpc import status_pb2
from toolmesh.audit.v1 import audit_service_pb2 as audit_pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as audit_rpc
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as authz_rpc
from toolmesh.common.v1 import error_reason_pb2

from libs.common.ids import new_id
from localmesh.state.certificates import issue_certificates
from tests.harness.mesh import ALICE, Mesh, invoke

UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture(scope="module")
def spoil(mesh: Mesh) -> Callable[..., str]:
    """Return a signer that holds the mesh's own key, for tokens that only the claims spoil."""
    folder = mesh.state / "secrets" / "signing-keys"
    key: Any = serialization.load_pem_private_key(sorted(folder.glob("*.pem"))[-1].read_bytes(), None)
    kid = jwt.get_unverified_header(mesh.token())["kid"]

    def mint(**changes: Any) -> str:
        now = int(time.time())
        claims = {
            "iss": mesh.runtime["issuer"], "aud": mesh.runtime["audience"], "sub": ALICE, "jti": new_id(),
            "iat": now - 7200,
            "exp": now + 600, "tier": "user", "scope": "tools:call", "tools": [{"tool": "*"}], **changes,
        }  # fmt: skip
        return jwt.encode(claims, key, "RS256", {"kid": kid})

    return mint


def tokens(mesh: Mesh, spoil: Callable[..., str], signer: Any) -> dict[str, str]:
    forged = type(signer)(kid=jwt.get_unverified_header(mesh.token())["kid"], key=signer.key)
    return {
        "missing": "",
        "forged": forged.mint(iss=mesh.runtime["issuer"], aud=mesh.runtime["audience"]),
        "expired": spoil(exp=int(time.time()) - 3600),
        "wrong audience": spoil(aud="another-mesh"),
        "garbage": "not.a.token",
    }


def test_the_spoiled_tokens_differ_from_a_good_one_only_in_what_spoils_them(
    mesh: Mesh, spoil: Callable[..., str]
) -> None:
    assert mesh.rpc("tools.invoke", {"tool": "echo", "arguments": {"text": "x"}}, token=spoil()).json().get("result")


CODES = {"missing": "E3005", "forged": "E3202", "expired": "E3201", "wrong audience": "E3208", "garbage": "E3203"}


def code_of(error: Any) -> str:
    """Return the code in the envelope that a gRPC refusal carries."""
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    envelope = error_reason_pb2.ErrorEnvelope()
    assert [detail for detail in status.details if detail.Unpack(envelope)] != []
    return str(envelope.code)


@pytest.mark.parametrize("kind", CODES)
def test_over_json_rpc(mesh: Mesh, spoil: Callable[..., str], signer: Any, kind: str) -> None:
    answer = mesh.rpc(
        "tools.invoke", {"tool": "echo", "arguments": {"text": "x"}}, token=tokens(mesh, spoil, signer)[kind]
    )
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == -32001
    assert answer.json()["error"]["data"]["code"] == CODES[kind]
    assert answer.json()["jsonrpc"] == "2.0"


@pytest.mark.parametrize("kind", CODES)
def test_over_grpc_through_the_edge(mesh: Mesh, spoil: Callable[..., str], signer: Any, kind: str) -> None:
    with mesh.edge_channel() as channel, pytest.raises(grpc.RpcError) as caught:
        invoke(channel, "echo", b'{"text":"x"}', token=tokens(mesh, spoil, signer)[kind])
    assert caught.value.code() is UNAUTHENTICATED
    assert code_of(caught.value) == CODES[kind]


@pytest.mark.parametrize("kind", CODES)
def test_over_grpc_straight_to_the_executor(mesh: Mesh, spoil: Callable[..., str], signer: Any, kind: str) -> None:
    with mesh.direct_channel("executor") as channel, pytest.raises(grpc.RpcError) as caught:
        invoke(channel, "echo", b'{"text":"x"}', token=tokens(mesh, spoil, signer)[kind])
    assert caught.value.code() is UNAUTHENTICATED
    assert code_of(caught.value) == CODES[kind]


def test_a_peer_without_a_certificate_gets_no_connection(mesh: Mesh) -> None:
    with mesh.direct_channel("executor", identity=None) as channel, pytest.raises(grpc.RpcError) as caught:
        invoke(channel, "echo", b'{"text":"x"}', token=mesh.token(), timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_peer_with_a_certificate_of_another_authority_gets_no_connection(mesh: Mesh, tmp_path: Path) -> None:
    other = issue_certificates(tmp_path).of("orchestrator")
    credentials = grpc.ssl_channel_credentials(
        Path(mesh.runtime["ca"]).read_bytes(), other.key.read_bytes(), other.cert.read_bytes()
    )
    options = [("grpc.ssl_target_name_override", "executor")]
    with grpc.secure_channel(mesh.part("executor")["address"], credentials, options=options) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            invoke(channel, "echo", b'{"text":"x"}', token=mesh.token(), timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_peer_of_the_mesh_may_only_call_what_its_row_allows(mesh: Mesh) -> None:
    with mesh.direct_channel("audit") as channel, pytest.raises(grpc.RpcError) as caught:
        next(
            iter(
                audit_rpc.AuditServiceStub(channel).AppendRecords(
                    iter([audit_pb.AppendRecordsRequest(batch=1)]), timeout=5
                )
            )
        )
    assert caught.value.code() is DENIED
    with mesh.direct_channel("authz") as channel, pytest.raises(grpc.RpcError) as caught:
        authz_rpc.AuthzServiceStub(channel).IssueToken(
            authz_pb.IssueTokenRequest(subject=ALICE, scopes=["tools:call"]), timeout=5
        )
    assert caught.value.code() is DENIED


def test_minting_is_not_to_be_had_from_outside_even_with_a_good_token(mesh: Mesh) -> None:
    with mesh.edge_channel() as channel, pytest.raises(grpc.RpcError) as caught:
        request = authz_pb.IssueTokenRequest(subject=ALICE, scopes=["tools:call"])
        metadata = [("authorization", f"Bearer {mesh.token()}")]
        authz_rpc.AuthzServiceStub(channel).IssueToken(request, metadata=metadata, timeout=5)  # type: ignore[arg-type]
    assert caught.value.code() is DENIED


def test_a_scope_that_is_missing_is_named(mesh: Mesh) -> None:
    answer = mesh.rpc("tools.list", {}, token=mesh.token(scopes="tools:call"))
    assert answer.json()["error"]["data"]["code"] == "E3209"
    assert answer.json()["error"]["data"]["metadata"]["required_scopes"] == "tools:read"
