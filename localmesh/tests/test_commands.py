"""The commands as a person meets them: what they print, what they return, what they refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from localmesh.tests.harness import Commands, all_gone, pids
from localmesh.tests.standins import TOKEN


def test_nothing_to_stop_is_fine(commands: Commands) -> None:
    finished = commands.run("down", "--json")
    assert finished.returncode == 0
    assert json.loads(finished.stdout)["stopped"] is False


def test_the_status_of_nothing_is_not_running(commands: Commands) -> None:
    finished = commands.run("status", "--json")
    assert finished.returncode == 3
    assert json.loads(finished.stdout)["running"] is False
    assert commands.run("status").returncode == 3


def test_up_prints_what_status_prints_and_down_ends_it(commands: Commands) -> None:
    started = commands.up()
    assert started.keys() - commands.status().keys() == {"token"}
    runtime = json.loads((commands.state / "runtime.json").read_text())
    assert "token" not in runtime
    assert started["token"] == TOKEN
    holders = [path.name for path in commands.state.rglob("*") if path.is_file() and TOKEN in path.read_text("latin-1")]
    assert holders == ["token"]
    finished = commands.run("down", "--json")
    assert json.loads(finished.stdout)["stopped"] is True
    assert all_gone(pids(started))
    assert not (commands.state / "runtime.json").exists()


@pytest.mark.parametrize("detach", [(), ("--detach",)])
def test_a_setting_that_cannot_be_meant_is_wrong_usage_and_named(tmp_path: Path, detach: tuple[str, ...]) -> None:
    commands = Commands(tmp_path / "state", environment={"TOOLMESH_DRAIN_SECONDS": "abc"})
    finished = commands.run("up", *detach)
    assert finished.returncode == 2
    assert "TOOLMESH_DRAIN_SECONDS" in finished.stdout


def test_a_setting_that_a_service_refuses_is_wrong_usage_too(commands: Commands) -> None:
    commands.composition = "one_that_was_misled"
    finished = commands.run("up")
    assert finished.returncode == 2
    assert "TOOLMESH_ANYTHING" in finished.stdout


def test_an_unknown_variable_is_named_and_stops_nothing(tmp_path: Path) -> None:
    commands = Commands(tmp_path / "state", environment={"TOOLMESH_TOOL_PACK": "/x", "TOOLMESH_TOKEN": "t"})
    finished = commands.run("up", "--detach", "--json")
    commands.down()
    assert finished.returncode == 0
    assert "TOOLMESH_TOOL_PACK" in finished.stderr
    assert "TOOLMESH_TOKEN" not in finished.stderr


def test_status_for_a_person_names_every_part(commands: Commands) -> None:
    document = commands.up()
    table = commands.run("status").stdout
    for entry in document["services"]:
        assert f"{entry['pid']}" in table
        assert entry["address"] in table


def test_status_asks_each_part_now(commands: Commands) -> None:
    commands.up()
    executor = commands.part("executor")
    os.kill(executor["pid"], 19)  # stopped, not dead: the runner has no reason to act
    assert [entry["ready"] for entry in commands.status()["services"]] == [True, True, False]
    os.kill(executor["pid"], 18)
    assert all(entry["ready"] for entry in commands.status()["services"])


def test_logs_of_one_part_and_of_all(commands: Commands) -> None:
    commands.up()
    one = commands.run("logs", "valkey", "-n", "2").stdout.splitlines()
    assert len(one) == 2
    everything = commands.run("logs").stdout.splitlines()
    assert {json.loads(line)["part"] for line in everything} >= {"valkey", "runner"}
    entries = [json.loads(line) for line in commands.run("logs", "--json").stdout.splitlines()]
    assert {"part", "line"} == entries[0].keys()
    assert commands.run("logs", "nobody").returncode == 2


def test_reset_asks_and_deletes_and_refuses_while_running(commands: Commands) -> None:
    commands.up()
    assert commands.run("reset", "--yes").returncode == 3
    commands.down()
    assert commands.run("reset").returncode == 1
    assert commands.state.exists()
    assert json.loads(commands.run("reset", "--yes", "--json").stdout)["deleted"] is True
    assert not commands.state.exists()
    assert commands.run("reset", "--yes").returncode == 0


def test_reset_empties_what_a_link_leads_to_and_leaves_the_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    commands = Commands(tmp_path / "state")
    commands.up()
    commands.down()
    assert commands.run("reset", "--yes").returncode == 0
    assert list((tmp_path / "disk").iterdir()) == []
    commands.up()
    commands.down()


@pytest.mark.parametrize("detach", [(), ("--detach",)])
def test_what_lies_where_the_person_is_is_not_taken_for_ours(tmp_path: Path, detach: tuple[str, ...]) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("secrets.py", "signal.py", "localmesh.py", "libs.py"):
        (elsewhere / name).write_text("raise SystemExit('this is not yours')")
    # As installed: a program that Python runs by its path does not look where the person is, and whom it starts
    # must not either.
    program = [str(Path(sys.executable).with_name("toolmesh")), "up", f"--state={tmp_path / 'state'}", *detach]
    environment = {**os.environ, "TOOLMESH_DRAIN_SECONDS": "abc"}
    finished = subprocess.run(program, cwd=elsewhere, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 2
    assert "TOOLMESH_DRAIN_SECONDS" in finished.stdout


@pytest.mark.parametrize("arguments", [("reset", "--yes"), ("up", "--detach"), ("up",)])
def test_a_folder_of_another_user_is_never_touched(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "thesis.txt").write_text("chapter one")
    finished = Commands(tmp_path).run(*arguments)
    assert finished.returncode == (0 if arguments[0] == "reset" else 1)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_wrong_usage_is_2(commands: Commands) -> None:
    assert commands.run("status", "--no-such-option").returncode == 2


def test_restart_gives_one_part_a_new_process_and_leaves_the_others(commands: Commands) -> None:
    before = {entry["name"]: entry["pid"] for entry in commands.up()["services"]}
    finished = commands.run("restart", "executor", "--json")
    assert finished.returncode == 0, finished.stderr + finished.stdout
    after = {entry["name"]: entry["pid"] for entry in commands.status()["services"]}
    assert {name for name in after if after[name] != before[name]} == {"executor"}
    assert json.loads(finished.stdout)["pid"] == after["executor"]
    assert all(entry["ready"] for entry in commands.status()["services"])
    assert commands.run("restart", "executer").returncode == 2
    commands.down()
    assert commands.run("restart", "executor").returncode == 3


def test_env_exports_the_address_and_the_token_of_a_running_mesh(commands: Commands) -> None:
    nothing = commands.run("env")
    assert (nothing.returncode, nothing.stdout) == (3, "")
    document = commands.up()
    finished = commands.run("env")
    script = f'{finished.stdout}\necho "$TOOLMESH_URL $TOOLMESH_TOKEN $TOOLMESH_STATE"; command -v toolmesh'
    shell = subprocess.run(
        ["sh"], input=script, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True
    )
    assert shell.stdout.split()[:3] == [document["gateway"]["url"], TOKEN, str(commands.state)]
    assert Path(shell.stdout.split()[3]) == Path(sys.executable).parent / "toolmesh"


def test_a_scale_that_cannot_be_meant_is_wrong_usage(commands: Commands) -> None:
    assert commands.run("up", "--scale", "executor=0").returncode == 2
    assert not commands.state.exists()
