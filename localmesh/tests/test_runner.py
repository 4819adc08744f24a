"""The runner as a process: killed, interrupted, started twice."""

from __future__ import annotations

import http.client
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localmesh.process.orphans import remember_children
from localmesh.settings import LOOPBACK, ROOT
from localmesh.state.files import write_json
from localmesh.state.state import State, open_state, runner_pid
from localmesh.tests.deadlines import eventually
from localmesh.tests.harness import Commands, all_gone, others_reach, pids
from localmesh.tests.parts.test_edge import Edge

NINE = ["postgres", "valkey", "authz", "audit", "registry", "approval", "executor", "gateway", "envoy"]


def test_the_whole_mesh_is_nine_parts_and_says_where_they_are(mesh: Commands) -> None:
    document = mesh.status()
    assert [entry["name"] for entry in document["services"]] == NINE
    assert all(entry["ready"] and entry["rss_bytes"] > 0 for entry in document["services"])
    assert document["rss_bytes"] > sum(entry["rss_bytes"] for entry in document["services"])
    assert document["ready_seconds"] > 0
    assert document["state"] == str(mesh.state)
    for path in (document["ca"], *document["operator"].values(), *document["orchestrator"].values()):
        assert Path(path).is_file()
    assert "token" not in document


def test_a_killed_service_comes_back_at_the_same_address(commands: Commands) -> None:
    commands.up()
    before = commands.part("executor")
    os.kill(before["pid"], signal.SIGKILL)
    eventually(lambda: commands.part("executor")["restarts"] == 1 and commands.part("executor")["ready"])
    after = commands.part("executor")
    assert after["pid"] != before["pid"]
    assert (after["address"], after["ops"]) == (before["address"], before["ops"])
    assert "SIGKILL" in eventually(lambda: _line_with(State(commands.state).log_file("runner"), "restart 1"))


def test_a_killed_runner_leaves_no_orphan(tmp_path: Path) -> None:
    commands = Commands(tmp_path / "state", "whole_mesh")
    document = commands.up()
    os.kill(document["runner_pid"], signal.SIGKILL)
    eventually(lambda: all_gone(pids(document)))
    assert commands.run("status").returncode == 3


def test_the_next_start_after_a_kill_keeps_secrets_ports_and_data(commands: Commands) -> None:
    first = commands.up()
    secrets = {path: path.read_bytes() for path in (commands.state / "secrets").rglob("*") if path.is_file()}
    authority = Path(first["ca"]).read_bytes()
    second = _after_a_kill(commands, first)
    for _ in range(4):
        if _addresses(second) == _addresses(first):
            break
        # Another mesh of these tests was quicker to take the ports; what this one has now, the next start keeps.
        first, second = second, _after_a_kill(commands, second)
    assert _addresses(second) == _addresses(first)
    assert {path: path.read_bytes() for path in secrets} == secrets
    assert Path(second["ca"]).read_bytes() != authority


def test_a_second_start_is_refused_and_says_who_runs(commands: Commands) -> None:
    document = commands.up()
    for arguments in (("up",), ("up", "--detach")):
        refused = commands.run(*arguments)
        assert refused.returncode == 3
        assert str(document["runner_pid"]) in refused.stdout
        assert document["gateway"]["url"] in refused.stdout
    assert commands.runtime()["runner_pid"] == document["runner_pid"]


def test_two_meshes_live_side_by_side(commands: Commands, tmp_path: Path) -> None:
    other = Commands(tmp_path / "other")
    starting = other.start("up", "--detach", "--json")
    ports = commands.up()["ports"].values()
    try:
        assert starting.wait(60) == 0
        assert not set(ports) & set(other.runtime()["ports"].values())
    finally:
        other.down()


def test_a_taken_port_is_avoided(commands: Commands) -> None:
    with socket.create_server((LOOPBACK, 0)) as somebody:
        taken = somebody.getsockname()[1]
        write_json(open_state(commands.state).ports_file, {"authz-ops": taken})
        document = commands.up()
        assert document["ports"]["authz-ops"] != taken


def test_ctrl_c_stops_everything_in_reverse_order(commands: Commands) -> None:
    running = commands.start("up")
    document = eventually(commands.ready)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert all_gone(pids(document))
    stopped = [line.split()[0] for line in said.splitlines() if " stopped " in line]
    assert stopped == ["executor", "authz", "valkey"]


def test_a_second_ctrl_c_kills_at_once(commands: Commands) -> None:
    commands.composition = "one_that_lingers"
    running = commands.start("up")
    document = eventually(commands.ready)
    running.send_signal(signal.SIGINT)
    eventually(lambda: (commands.state / "lingering").exists())
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)
    assert running.returncode == 130
    assert all_gone(pids(document))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A started process hears Ctrl-C, also where the tests themselves run in the background and do not."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


@pytest.fixture
def straggler() -> Iterator[int]:
    """A process that takes its time to end."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process.pid
        process.kill()


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_before_anything_runs_is_no_accident(commands: Commands, straggler: int) -> None:
    state = open_state(commands.state)
    # As if a killed runner had left a child: the start waits for it.
    remember_children(state.children_file, {"authz": straggler})
    running = commands.start("up")
    eventually(lambda: runner_pid(state) == running.pid)
    eventually(lambda: _catches(running.pid, signal.SIGINT))
    running.send_signal(signal.SIGINT)
    _, complaint = running.communicate(timeout=10)
    assert running.returncode == 130
    assert "Traceback" not in complaint
    assert runner_pid(state) is None


def test_logs_do_not_grow_while_a_mesh_is_left_running(commands: Commands) -> None:
    commands.composition = "one_that_talks"
    commands.up()
    log = State(commands.state).log_file("authz")
    moved = eventually(lambda: _written_at(log.with_name("authz.log.1")))
    eventually(lambda: _written_at(log.with_name("authz.log.1")) not in (None, moved))
    commands.down()
    assert set(log.with_name("authz.log.1").read_text().splitlines()) == {"a line of twenty."}


def test_a_part_that_fails_stops_the_start_and_shows_the_end_of_its_log(commands: Commands) -> None:
    commands.composition = "one_that_fails"
    for arguments in (("up",), ("up", "--detach")):
        finished = commands.run(*arguments)
        assert finished.returncode == 1
        assert "line 39" in finished.stdout
        assert "line 24" not in finished.stdout
        assert commands.run("status").returncode == 3


def test_a_call_under_way_is_finished_before_the_edge_goes(tmp_path: Path) -> None:
    commands = Commands(tmp_path / "state", "whole_mesh")
    commands.up()
    edge = Edge(commands)
    answers: list[int] = []
    calling = threading.Thread(
        target=lambda: answers.append(edge.rpc(edge.headers(**{"x-standin-delay": "1"})).status_code)
    )
    calling.start()
    eventually(lambda: _active_requests(commands.runtime()) > 0)
    commands.down()
    calling.join()
    assert answers == [200]


def test_a_terminal_gets_colour_and_a_file_does_not(commands: Commands) -> None:
    leader, follower = pty.openpty()
    running = subprocess.Popen(commands.argv("up"), stdout=follower, **commands.options())
    os.close(follower)
    said = b""
    while b"state" not in said:
        said += os.read(leader, 65536)
    assert b"\x1b[32m" in said
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0
    os.close(leader)


def test_the_runner_stays_small(commands: Commands) -> None:
    assert commands.up()["runner_rss_bytes"] < 40_000_000


@pytest.fixture
def home_of_nobody() -> Iterator[Path]:
    # pytest's own folders are closed to others on the way down.
    home = Path(tempfile.mkdtemp(dir="/var/tmp"))
    shutil.chown(home, 65534, 65534)
    yield home
    shutil.rmtree(home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_runs_the_whole_mesh(home_of_nobody: Path) -> None:
    interpreter = _interpreter_for_nobody()
    if not others_reach(ROOT / "localmesh"):
        pytest.skip("this tree lies where another user may not read it")
    if interpreter is None:
        pytest.skip("no interpreter of this version that other users may run")
    packages = os.pathsep.join([str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))])
    commands = Commands(
        home_of_nobody / "state",
        "whole_mesh",
        {"HOME": str(home_of_nobody), "PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1"},
        {"user": 65534, "group": 65534, "extra_groups": []},
        interpreter,
    )
    document = commands.up()
    assert all(entry["ready"] for entry in document["services"])
    assert {Path(f"/proc/{pid}").stat().st_uid for pid in pids(document)} == {65534}
    commands.down()
    assert all_gone(pids(document))


def _catches(pid: int, number: signal.Signals) -> bool:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return bool(int(fields["SigCgt"], 16) >> (number - 1) & 1)


def _after_a_kill(commands: Commands, running: dict[str, Any]) -> dict[str, Any]:
    os.kill(running["runner_pid"], signal.SIGKILL)
    return commands.up()


def _addresses(document: dict[str, Any]) -> list[str]:
    return [entry["address"] for entry in document["services"]]


def _written_at(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None


def _line_with(path: Path, text: str) -> str | None:
    return next((line for line in path.read_text().splitlines() if text in line), None)


def _interpreter_for_nobody() -> str | None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, shutil.which(version, path="/usr/local/bin:/usr/bin")):
        try:
            subprocess.run([str(candidate), "-c", ""], user=65534, group=65534, extra_groups=[], check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return str(candidate)
    return None


def _active_requests(runtime: dict[str, Any]) -> int:
    connection = http.client.HTTPConnection(LOOPBACK, runtime["ports"]["envoy"])
    connection.request("GET", "/stats?format=json&filter=http.ingress.downstream_rq_active")
    stats = json.loads(connection.getresponse().read())["stats"]
    connection.close()
    return int(stats[0]["value"])
