"""The command line as a whole: its help, its plugins, and what happens when something unforeseen does."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from toolmesh_sdk.cli.main import build
from toolmesh_sdk.cli.plugins import GROUP
from typer.testing import CliRunner

PLUGINS = '''
import typer
def good(app):
    @app.command()
    def greet():
        """Greets."""
        typer.echo("hello")
def half(app):
    @app.command()
    def ghost():
        """Haunts."""
    raise RuntimeError("broken on the way")
'''


def run(*arguments: str, plugins: Any = ()) -> Any:
    return CliRunner().invoke(build(plugins=plugins), list(arguments))


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    (tmp_path / "commands_for_test.py").write_text(PLUGINS)
    monkeypatch.syspath_prepend(str(tmp_path))
    targets = {
        "missing": "no_such_module:register",
        "half": "commands_for_test:half",
        "good": "commands_for_test:good",
    }
    return [EntryPoint(name, target, GROUP) for name, target in targets.items()]


def test_help_names_every_command_and_every_exit_code() -> None:
    text = run("--help").stdout
    for word in ("call", "tools", "token", "audit", "doctor", "version", "TOOLMESH_URL", "Exit codes", "5  "):
        assert word in text
    assert run("-h").stdout == text


def test_plugins_add_commands_and_a_broken_one_breaks_nothing(plugins: list[EntryPoint], tmp_path: Path) -> None:
    assert run("greet", plugins=plugins).stdout == "hello\n"
    text = run("--help", plugins=plugins).stdout
    assert "greet" in text
    assert "ghost" not in text
    ran = run("doctor", "--json", "--state", str(tmp_path / "new"), plugins=plugins)
    found = {check["name"]: check["status"] for check in json.loads(ran.stdout)["checks"]}
    assert [found[f"commands:{name}"] for name in ("missing", "half", "good")] == ["fail", "fail", "ok"]
    assert ran.exit_code == 1


@pytest.mark.parametrize("name", ["call", "tools", "token", "doctor", "version", "greet"])
def test_a_command_that_is_built_alone_is_the_same_as_among_all(name: str, plugins: list[EntryPoint]) -> None:
    alone = CliRunner().invoke(build(plugins=plugins, only=name), [name, "--help"])
    assert alone.stdout == run(name, "--help", plugins=plugins).stdout
    assert alone.exit_code == 0


def test_an_unknown_command_is_sought_among_all() -> None:
    assert "call" in CliRunner().invoke(build(plugins=(), only="cal"), ["--help"]).stdout
    assert CliRunner().invoke(build(plugins=(), only="cal"), ["cal"]).exit_code == 2


def test_a_command_loads_no_plugin_that_it_does_not_need() -> None:
    program = "import sys; from toolmesh_sdk.cli.main import run; sys.argv = ['toolmesh', 'version']\n"
    program += "try: run()\nexcept SystemExit: print('localmesh.commands' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_version_is_the_packages() -> None:
    document = json.loads(run("version", "--json").stdout)
    assert set(document) == {"toolmesh", "python", "platform"}
    assert document["toolmesh"] in run("version").stdout
    assert run("--version").stdout == f"toolmesh {document['toolmesh']}\n"


@pytest.mark.parametrize("arguments", [["tools"], ["token"], ["audit"], []])
def test_a_group_without_a_command_shows_its_help(arguments: list[str]) -> None:
    ran = run(*arguments)
    assert ran.exit_code == 2
    assert "Commands:" in ran.output


def program(*arguments: str | bytes, **more: Any) -> Any:
    environment = {**os.environ, "TOOLMESH_STATE": "/nowhere"}
    command = [sys.executable, "-m", "toolmesh_sdk", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False, **more)


def test_an_argument_that_is_no_text_is_two_without_a_trace(local_mesh: Path, mesh: Any) -> None:
    ran = program("call", b"ech\xff", "{}", "--state", str(local_mesh))
    assert (ran.returncode, ran.stdout, mesh.of("Invoke")) == (2, b"", [])
    assert b"Traceback" not in ran.stderr


def test_letters_that_have_no_form_are_shown_by_their_number() -> None:
    claims = base64.urlsafe_b64encode(rb'{"sub": "\ud800"}').decode()
    ran = program("token", "inspect", f"a.{claims}.c", "--offline", "--json")
    assert (ran.returncode, json.loads(ran.stdout)["claims"]) == (0, {"sub": "\ud800"})


def test_streams_that_are_closed_stop_nothing() -> None:
    for closed in (1, 2):
        assert program("version", preexec_fn=partial(os.close, closed)).returncode == 0


def test_an_unexpected_exception_is_one_line(tmp_path: Path) -> None:
    # A runtime document of another shape is such a case: its text cannot be trusted to make sense.
    (tmp_path / "runtime.json").write_text(json.dumps({"runner_pid": os.getpid(), "grpc": 5}))
    argv = [sys.executable, "-m", "toolmesh_sdk", "tools", "list", "--state", str(tmp_path)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TOOLMESH_")}
    ran = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
