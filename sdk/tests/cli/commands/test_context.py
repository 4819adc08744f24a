"""Contexts: other meshes by name, for callers and operators, on real gRPC servers."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toolmesh.authz.v1 import policy_service_pb2
from toolmesh.registry.v1 import registry_service_pb2
from toolmesh_sdk.cli.inputs.contexts import contexts_file

SECRET = "a.secret.token"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TOOLMESH_CONTEXT", raising=False)
    return contexts_file()


@pytest.fixture
def operator_files(pki: Any) -> list[str]:
    identity = pki.of("operator")
    return ["--ca", str(pki.ca), "--cert", str(identity.cert), "--key", str(identity.key)]


def test_an_operator_reaches_each_service_of_another_mesh_by_its_certificate(
    toolmesh: Any, mesh: Any, serve: Callable[..., str], operator_files: list[str], config: Path, tmp_path: Path
) -> None:
    mesh.answer("ListPolicySets", policy_service_pb2.ListPolicySetsResponse())
    services = [f"--service={name}={serve(name)}" for name in ("authz", "registry")]
    assert toolmesh("context", "add", "prod", *operator_files, *services).exit_code == 0
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert "PRIVATE" not in config.read_text()
    assert toolmesh("token", "mint", "--context", "prod", "--raw").exit_code == 0
    assert toolmesh("policy", "list", "--context", "prod").exit_code == 0
    calls = {call.method: call for call in mesh.seen}
    assert all("spiffe://toolmesh.local/operator" in calls[name].peer for name in ("IssueToken", "ListPolicySets"))
    unknown = toolmesh("audit", "shards", "--context", "prod")
    assert (unknown.exit_code, "audit" in unknown.stderr) == (2, True)


def test_an_operator_needs_no_context(
    toolmesh: Any, mesh: Any, serve: Callable[..., str], operator_files: list[str], config: Path
) -> None:
    address = serve("authz")
    done = toolmesh("token", "mint", "--raw", "--url", f"https://{address}", *operator_files)
    assert (done.exit_code, done.stdout.count(".")) == (0, 2)
    assert "spiffe://toolmesh.local/operator" in mesh.of("IssueToken")[0].peer
    # Without its certificate the operator has no authority: the command says so before it calls anything.
    assert toolmesh("token", "mint", "--url", "https://mesh.example").exit_code == 2


def test_a_caller_uses_the_token_of_the_context_and_never_that_of_the_environment(
    toolmesh: Any,
    mesh: Any,
    serve: Callable[..., str],
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mesh.answer("ListTools", registry_service_pb2.ListToolsResponse())
    monkeypatch.setenv("TOOLMESH_TOKEN", SECRET)
    (tmp_path / "token").write_text("the.context.token\n")
    url = f"http://{serve()}"
    toolmesh("context", "add", "prod", "--url", url, "--token-file", str(tmp_path / "token"))
    assert toolmesh("tools", "list", "--context", "prod").exit_code == 0
    toolmesh("context", "add", "bare", "--url", url)
    assert toolmesh("tools", "list", "--context", "bare").exit_code == 0
    assert toolmesh("tools", "list", "--context", "bare", "--token", "typed.by.hand").exit_code == 0
    tokens = [call.metadata.get("authorization") for call in mesh.of("ListTools")]
    assert tokens == ["Bearer the.context.token", None, "Bearer typed.by.hand"]
    assert SECRET not in config.read_text()


def test_the_selected_context_is_used_until_another_mesh_is_named(
    toolmesh: Any, mesh: Any, serve: Callable[..., str], config: Path, monkeypatch: pytest.MonkeyPatch, local_mesh: Path
) -> None:
    mesh.answer("ListTools", registry_service_pb2.ListToolsResponse())
    monkeypatch.delenv("TOOLMESH_STATE")
    monkeypatch.setenv("HOME", str(local_mesh))
    toolmesh("context", "add", "prod", "--url", f"http://{serve()}", "--use")
    assert json.loads(toolmesh("context", "list", "--json").stdout)["current"] == "prod"
    assert toolmesh("tools", "list").exit_code == 0
    assert mesh.of("IssueToken") == []
    assert toolmesh("tools", "list", "--state", str(local_mesh)).exit_code == 0
    assert len(mesh.of("IssueToken")) == 1
    assert toolmesh("tools", "list", "--url", "http://127.0.0.1:1", "--context", "prod").exit_code == 2
    assert toolmesh("context", "use", "local").exit_code == 0
    assert toolmesh("tools", "list").exit_code == 3
    assert toolmesh("context", "remove", "prod").exit_code == 0
    assert json.loads(toolmesh("context", "list", "--json").stdout)["contexts"] == {}


def test_a_context_that_cannot_work_is_refused_and_not_stored(
    toolmesh: Any, operator_files: list[str], config: Path, tmp_path: Path, pki: Any
) -> None:
    other = pki.of("registry")
    for wrong in (
        [],
        ["--service", "authz=h:1"],
        [*operator_files, "--service", "nothing=h:1"],
        ["--url", "https://h", "--ca", str(tmp_path / "missing.pem")],
        ["--url", "https://h", "--token-file", str(tmp_path / "missing")],
        ["--url", "https://h", *operator_files[:4], "--key", str(other.key)],
    ):
        assert toolmesh("context", "add", "prod", *wrong).exit_code == 2, wrong
    assert toolmesh("context", "add", "local", "--url", "http://127.0.0.1:1").exit_code == 2
    assert not config.exists()
    assert toolmesh("tools", "list", "--context", "prod").exit_code == 2
    config.parent.mkdir(parents=True)
    config.write_text("[not contexts]")
    assert toolmesh("context", "use", "local").exit_code == 2
    assert config.read_text() == "[not contexts]"


def test_the_exported_token_of_the_local_user_leaves_the_operator_its_authority(
    toolmesh: Any, mesh: Any, config: Path, local_mesh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`toolmesh env` exports it for curl; any other token still limits a command."""
    mesh.answer("ListPolicySets", policy_service_pb2.ListPolicySetsResponse())
    runtime = json.loads((local_mesh / "runtime.json").read_text())
    monkeypatch.setenv("TOOLMESH_URL", runtime["grpc"]["address"])
    (local_mesh / "token").write_text(f"{SECRET}\n")
    for token in (SECRET, "an.other.token"):
        monkeypatch.setenv("TOOLMESH_TOKEN", token)
        assert toolmesh("policy", "list").exit_code == 0
    first, second = mesh.of("ListPolicySets")
    assert "operator" in first.peer
    assert "authorization" not in first.metadata
    assert second.metadata["authorization"] == "Bearer an.other.token"
