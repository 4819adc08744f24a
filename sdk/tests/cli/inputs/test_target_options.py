"""The decorators that add the connection options to a command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_operator_options, add_target_options
from typer.testing import CliRunner

VARIABLES = ("TOOLMESH_URL", "TOOLMESH_TOKEN", "TOOLMESH_STATE", "TOOLMESH_CA")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))


def run(decorate: Any, *arguments: str) -> tuple[int, list[Any]]:
    received: list[Any] = []

    @decorate
    def command(name: Annotated[str, typer.Argument()], *, target: Target, as_json: bool) -> None:
        received.extend([name, target, as_json])

    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(arguments)).exit_code, received


def test_a_command_receives_its_options_as_one_target(tmp_path: Path) -> None:
    options = ["--url", "h:1", "--token", "t", "--state", str(tmp_path), "--ca", "ca.pem", "--timeout", "2", "--json"]
    target = Target(url="h:1", token="t", state=tmp_path, ca=Path("ca.pem"), timeout=2.0)
    assert run(add_target_options(), "echo", *options) == (0, ["echo", target, True])


def test_the_timeout_has_the_default_of_the_command() -> None:
    assert run(add_target_options(timeout=600.0), "echo") == (0, ["echo", Target(timeout=600.0), False])


def test_the_private_key_is_key_unless_the_command_has_one_of_its_own() -> None:
    files = Target(cert=Path("c.pem"), cert_key=Path("k.pem"), url="h:1")
    options = ["--url", "h:1", "--cert", "c.pem"]
    assert run(add_target_options(), "echo", *options, "--key", "k.pem") == (0, ["echo", files, False])
    received: list[Any] = []

    @add_target_options()
    def command(key: Annotated[str, typer.Option()] = "", *, target: Target, as_json: bool) -> None:
        received.extend([key, target])

    app = typer.Typer()
    app.command()(command)
    assert CliRunner().invoke(app, [*options, "--key", "mine", "--cert-key", "k.pem"]).exit_code == 0
    assert received == ["mine", files]


def test_operator_commands_take_no_token() -> None:
    assert run(add_operator_options(), "echo", "--url", "h:1") == (0, ["echo", Target(url="h:1"), False])
    assert run(add_operator_options(), "echo", "--token", "t") == (2, [])
