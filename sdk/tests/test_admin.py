"""Operator calls: with the operator's certificate, straight to authz."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from toolmesh.authz.v1 import authz_service_pb2
from toolmesh_sdk import InvalidInputError, Reason
from toolmesh_sdk.admin import introspect_token, mint_token, operator, service_address

from libs.common.errors import MeshError

WISHES = ["mint", "--sub", "did:web:x:alice", "--tools", "echo,arith*@^1.2", "--scopes", "tools:call", "--ttl", "60"]


@pytest.fixture
def runtime(local_mesh: Path) -> Any:
    return json.loads((local_mesh / "runtime.json").read_text())


def test_a_token_is_asked_for_by_the_operator_with_every_wish(runtime: Any, mesh: Any) -> None:
    token = mint_token(
        runtime,
        sub="did:web:x:alice",
        tools=["echo", "arith*@^1.2"],
        scopes=["tools:call"],
        ttl_seconds=90,
        tenant="acme",
        groups=["staff"],
        trust=40,
        audience=["toolmesh"],
    )
    assert token.count(".") == 2
    asked = mesh.seen[0]
    assert "spiffe://toolmesh.local/operator" in asked.peer
    assert [(grant.tool, grant.version_constraint) for grant in asked.request.tools] == [
        ("echo", ""),
        ("arith*", "^1.2"),
    ]
    assert (asked.request.subject, asked.request.lifetime.seconds, asked.request.trust_level) == (
        "did:web:x:alice",
        90,
        40,
    )
    assert (asked.request.tenant, list(asked.request.groups), list(asked.request.audiences)) == (
        *("acme", ["staff"]),
        ["toolmesh"],
    )


def test_the_issuers_refusal_is_typed(runtime: Any, mesh: Any) -> None:
    mesh.answer("IssueToken", MeshError(Reason.INVALID_REQUEST))
    with pytest.raises(InvalidInputError):
        mint_token(runtime, sub="did:web:x:alice", tools=[], scopes=[], ttl_seconds=1)


def test_the_mesh_says_whether_it_accepts_a_token(runtime: Any, mesh: Any) -> None:
    mesh.answer("IntrospectToken", authz_service_pb2.IntrospectTokenResponse(active=False, error_code="E3201"))
    with operator(runtime) as transport:
        answer = introspect_token(transport, "a.b.c")
    assert (answer.active, answer.error_code, mesh.seen[0].request.token) == (False, "E3201", "a.b.c")


def test_a_document_without_authz_is_no_use(runtime: Any) -> None:
    with pytest.raises(KeyError):
        service_address({**runtime, "services": []}, "authz")


def test_the_admin_program_prints_only_the_token(local_mesh: Path) -> None:
    done = _run(local_mesh / "runtime.json")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    assert done.stdout.count(".") == 2


def test_the_admin_program_fails_on_stderr(local_mesh: Path, mesh: Any, tmp_path: Path) -> None:
    mesh.answer("IssueToken", MeshError(Reason.PEER_NOT_ALLOWED))
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "broken.json").write_text("no json")
    for name in ("runtime.json", "missing.json", "empty.json", "broken.json"):
        done = _run(tmp_path / name)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1


def _run(runtime: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "toolmesh_sdk.admin", *WISHES, "--runtime", str(runtime)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
