"""`toolmesh token`: minted as wished, shown without pretending to verify."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
import typer
from toolmesh.authz.v1 import authz_service_pb2
from toolmesh_sdk import Reason
from toolmesh_sdk.cli.claims import claim_rows, seconds_of

from libs.common.errors import MeshError


def test_raw_prints_just_the_token(toolmesh: Any, mesh: Any) -> None:
    ran = toolmesh(
        *("token", "mint", "--raw", "--sub", "did:web:x:alice", "--tools", "echo, arith*", "--ttl", "2h"),
        *("--scopes", "tools:call", "--tenant", "acme", "--trust", "7", "--audience", "toolmesh,other"),
    )
    assert (ran.exit_code, ran.stderr, ran.stdout.count("\n"), ran.stdout.count(".")) == (0, "", 1, 2)
    request = mesh.of("IssueToken")[0].request
    assert [grant.tool for grant in request.tools] == ["echo", "arith*"]
    assert (request.subject, request.lifetime.seconds, request.tenant) == ("did:web:x:alice", 7200, "acme")
    assert (list(request.scopes), request.trust_level, list(request.audiences)) == (
        *(["tools:call"], 7),
        ["toolmesh", "other"],
    )


def test_claims_are_shown_beside_the_token(toolmesh: Any) -> None:
    ran = toolmesh("token", "mint", "--sub", "did:web:x:alice")
    assert ran.stdout.count(".") == 2
    assert "did:web:x:alice" in ran.stderr
    document = json.loads(toolmesh("token", "mint", "--sub", "did:web:x:bob", "--json").stdout)
    assert set(document) == {"token", "claims"}
    assert document["claims"]["sub"] == "did:web:x:bob"


@pytest.mark.parametrize(
    ("failure", "code"), [(MeshError(Reason.PEER_NOT_ALLOWED), 4), (MeshError(Reason.INVALID_REQUEST), 1)]
)
def test_a_refusal_is_no_token(toolmesh: Any, mesh: Any, failure: Any, code: int) -> None:
    mesh.answer("IssueToken", failure)
    ran = toolmesh("token", "mint", "--raw")
    assert (ran.exit_code, ran.stdout) == (code, "")


def test_a_token_is_decoded_and_the_mesh_is_asked_about_it(toolmesh: Any, mesh: Any, signer: Any) -> None:
    mesh.answer("IntrospectToken", authz_service_pb2.IntrospectTokenResponse(active=False, error_code="E3212"))
    token = signer.mint("did:web:x:alice")
    ran = toolmesh("token", "show", "-", "--json", stdin=token + "\n")
    document = json.loads(ran.stdout)
    assert (document["verified"], document["claims"]["sub"]) == (False, "did:web:x:alice")
    assert document["introspection"] == {"active": False, "error_code": "E3212"}
    assert mesh.of("IntrospectToken")[0].request.token == token
    shown = toolmesh("token", "show", token)
    assert "not verified" in shown.stderr
    assert "E3212" in shown.stderr


def test_without_a_mesh_a_token_is_still_decoded(toolmesh: Any, mesh: Any, signer: Any, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nothing")
    document = json.loads(toolmesh("token", "show", signer.mint(), "--state", nowhere, "--json").stdout)
    assert document["introspection"] is None
    mesh.answer("IntrospectToken", grpc.StatusCode.PERMISSION_DENIED)
    document = json.loads(toolmesh("token", "show", signer.mint(), "--json").stdout)
    assert document["introspection"]["active"] is None


@pytest.mark.parametrize("text", ["nonsense", "a.b.c", "a.IjEi.c", "a.@@.c"])
def test_what_is_no_token_is_wrong_usage(toolmesh: Any, text: str) -> None:
    assert toolmesh("token", "show", text).exit_code == 2


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("1h", 3600), ("2d", 172800)])
def test_lifetimes_are_written_as_people_write_them(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-1h", "1.5h", "soon", "1w"])
def test_other_lifetimes_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        seconds_of(text)


def test_times_are_shown_as_times() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    rows = dict(claim_rows({"sub": "x", "exp": now.timestamp() + 90, "iat": now.timestamp(), "tools": [1]}, now))
    assert rows == {
        "sub": "x",
        "exp": "2026-01-01T00:01:30Z  (1 min 30 s left)",
        "iat": "2026-01-01T00:00:00Z",
        "tools": "[1]",
    }
    assert "expired" in dict(claim_rows({"exp": 0}, now))["exp"]
