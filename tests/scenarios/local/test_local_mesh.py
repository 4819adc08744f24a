"""The local mesh keeps its promises to the person who runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.mesh import TOOLMESH, Mesh, cli
from tests.harness.stores import wait_until

MEGABYTE = 1024 * 1024


def test_status_tells_what_scripts_rely_on(mesh: Mesh) -> None:
    status = mesh.status()
    assert status["gateway"]["url"].startswith("http://127.0.0.1:")
    assert ":" in status["grpc"]["address"]
    assert {part["name"] for part in status["services"]} >= {
        "registry",
        "authz",
        "executor",
        "approval",
        "audit",
        "gateway",
    }
    for part in status["services"]:
        assert set(part) >= {"name", "address", "pid", "ready", "rss_bytes", "restarts"}
        assert part["ready"] is True


def test_the_raw_token_is_just_the_token(mesh: Mesh) -> None:
    done = cli(
        "token", "mint", "--sub", "did:web:example.com:alice", "--tools", "echo,arith*", "--raw", state=mesh.state
    )
    assert done.stdout.count(".") == 2
    assert done.stdout.strip().count("\n") == 0


def test_a_second_mesh_on_the_same_state_is_refused_and_one_beside_it_is_not_disturbed(mesh: Mesh) -> None:
    assert cli("up", "--detach", "--state", str(mesh.state), "--json", check=False).returncode == 3
    assert mesh.rpc("tools.list", {}, token=mesh.token()).status_code == 200


def test_the_printed_call_works_by_copy_and_paste_and_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TOOLMESH_STATE": str(tmp_path / "state")}
    log = tmp_path / "up.txt"
    with log.open("wb") as output:
        runner = subprocess.Popen(
            [TOOLMESH, "up"], stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        wait_until(lambda: "toolmesh call" in log.read_text() or runner.poll() is not None, "a mesh that is up", 300)
        printed = log.read_text()
        token = (tmp_path / "state" / "token").read_text().strip()
        assert token not in printed
        # As a person in another terminal: no toolmesh on the PATH, and the usual state folder.
        script = printed[printed.index("eval ") :] + '\nprintf "%s" "$TOOLMESH_TOKEN" > token.txt'
        bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TOOLMESH_STATE": str(tmp_path / "state")}
        answer = subprocess.run(
            ["sh"], input=script, env=bare, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert json.loads(answer.stdout) == {"text": "hello"}
        assert (tmp_path / "token.txt").read_text() == token
        status = json.loads(cli("status", "--json", state=tmp_path / "state").stdout)
        assert 0 < status["rss_bytes"] < 1200 * MEGABYTE
        assert status["ready_seconds"] > 0
    finally:
        os.kill(runner.pid, signal.SIGINT)
        assert runner.wait(240) == 0
    assert [part["name"] for part in status["services"] if Path(f"/proc/{part['pid']}").exists()] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; others are one already")
def test_an_ordinary_user_runs_it_too(tmp_path: Path, repository: Path) -> None:
    home = Path("/var/tmp") / f"toolmesh-test-{os.getpid()}"
    home.mkdir(mode=0o755)
    os.chown(home, 65534, 65534)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "TOOLMESH_STATE": str(home / "state")}

    def ordinary(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [TOOLMESH, *arguments],
            user=65534,
            group=65534,
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )

    try:
        if not _same_interpreter_for(65534):
            pytest.skip("this tree or its Python lies where another user may not read it")
        up = ordinary("up", "--detach", "--json")
        assert up.returncode == 0, up.stderr + up.stdout
        call = ordinary("call", "echo", '{"text": "ordinary"}', "--json")
        assert json.loads(call.stdout)["content"] == {"text": "ordinary"}
        ordinary("down").check_returncode()
    finally:
        subprocess.run(["rm", "-rf", str(home)], check=True)


def _same_interpreter_for(user: int) -> bool:
    """Whether this Python is the same for that user: without its own libpython a copied one loads the system's."""
    script = "import sys, toolmesh_sdk; print(sys.version, sys.base_prefix)"
    try:
        theirs = subprocess.run(
            [sys.executable, "-c", script], user=user, group=user, env={}, cwd="/", capture_output=True, text=True
        )
    except PermissionError:
        return False
    return theirs.stdout.strip() == f"{sys.version} {sys.base_prefix}"
