"""The login key: who may read it, and which tokens it is proved for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import typer
from toolmesh.executor.v1 import executor_service_pb2
from toolmesh_sdk import ProofKey
from toolmesh_sdk.cli.inputs.login_key import login_key_file, proof_key_for, read_or_create_login_key

from libs.common.auth.dpop import Target, check_proof, new_proof_cache


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def bound(signer: Any, key: ProofKey) -> str:
    token: str = signer.mint(cnf={"jkt": key.thumbprint})
    return token


def test_the_key_is_made_once_and_for_its_owner_alone() -> None:
    first = read_or_create_login_key()
    path = login_key_file()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert read_or_create_login_key().thumbprint == first.thumbprint
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_the_key_is_proved_for_tokens_that_are_bound_to_it_and_for_no_other(signer: Any) -> None:
    assert proof_key_for(bound(signer, ProofKey())) is None
    assert not login_key_file().exists()
    key = read_or_create_login_key()
    found = proof_key_for(bound(signer, key))
    assert found is not None
    assert found.thumbprint == key.thumbprint
    for other in (bound(signer, ProofKey()), signer.mint(), signer.mint(cnf={"x5t#S256": "a"}), "garbage", "a.b.c"):
        assert proof_key_for(other) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_that_others_may_read_is_refused(signer: Any, mode: int) -> None:
    key = read_or_create_login_key()
    login_key_file().chmod(mode)
    with pytest.raises(typer.BadParameter):
        proof_key_for(bound(signer, key))
    with pytest.raises(typer.BadParameter):
        read_or_create_login_key()


def test_a_file_that_holds_no_key_is_refused_and_stays(signer: Any) -> None:
    key = read_or_create_login_key()
    login_key_file().write_text("not a key")
    with pytest.raises(typer.BadParameter):
        proof_key_for(bound(signer, key))
    assert login_key_file().read_text() == "not a key"


def test_every_call_of_a_command_has_a_proof_of_its_own(toolmesh: Any, mesh: Any, signer: Any) -> None:
    key, used = read_or_create_login_key(), new_proof_cache()
    mesh.answer("Invoke", executor_service_pb2.InvokeResponse())
    token = bound(signer, key)
    for _ in range(2):
        toolmesh("call", "echo", "--token", token)
    calls = mesh.of("Invoke")
    assert len(calls) == 2
    target = Target("POST", "/toolmesh.executor.v1.ExecutorService/Invoke", None)
    for call in calls:
        assert call.metadata["authorization"] == f"DPoP {token}"
        facts = {"token": token, "subject": "", "thumbprint": key.thumbprint}
        check_proof(call.metadata["dpop"], **facts, target=target, now=time.time(), used=used)
    toolmesh("call", "echo", "--token", signer.mint())
    assert "dpop" not in mesh.of("Invoke")[-1].metadata
