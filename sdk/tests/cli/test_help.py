"""The help of every command: summaries that fit 80 columns, and the shared options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from toolmesh_sdk.cli.main import build
from typer.testing import CliRunner

MAX_SUMMARY = 50
CONNECTION = {
    *("--timeout", "--context", "--url", "--token", "--state", "--ca", "--cert", "--cert-key", "--json"),
}
# Commands that only the operator's certificate may run, and those that call no mesh.
OPERATOR_COMMANDS = {
    *("namespace claim", "namespace transfer", "token mint", "token inspect", "tools reinstate"),
    *(f"connect {kind}" for kind in ("mcp", "openapi", "grpc", "http", "websocket", "file")),
    *(f"upstreams {verb}" for verb in ("list", "show", "refresh", "accept", "remove")),
}
OFFLINE_COMMANDS = {
    "doctor",
    "version",
    "completion",
    *(f"context {verb}" for verb in ("add", "use", "list", "remove")),
}
# Where --key is the idempotency key, the log's key, or a signing key.
OTHER_KEY = {"call", "keys list", "audit verify", "audit archive", "token revoke"}


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, child in getattr(command, "commands", {}).items():
        yield " ".join((*path, name)), child
        yield from walk(child, (*path, name))


COMMANDS = dict(walk(typer.main.get_command(build(plugins=()))))
GROUPS = ["", *(path for path, command in COMMANDS.items() if hasattr(command, "commands"))]


def test_the_walk_finds_nested_commands() -> None:
    assert {"call", "tools", "tools list", "audit hold place"} <= set(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_a_summary_of_at_most_fifty_characters(path: str) -> None:
    summary = COMMANDS[path].get_short_help_str(limit=1000)
    assert 0 < len(summary) <= MAX_SUMMARY, summary


@pytest.mark.parametrize("path", GROUPS)
def test_no_summary_is_cut_in_a_terminal_of_80_columns(path: str) -> None:
    ran = CliRunner(env={"COLUMNS": "80"}).invoke(build(plugins=()), [*path.split(), "--help"])
    commands = ran.stdout.partition("Commands:")[2].partition("Connection:")[0]
    assert commands
    assert "..." not in commands


@pytest.mark.parametrize("path", sorted(set(COMMANDS) - set(GROUPS) - OFFLINE_COMMANDS))
def test_every_command_that_calls_a_mesh_has_the_shared_options(path: str) -> None:
    options = {name for parameter in COMMANDS[path].params for name in parameter.opts}
    assert options >= (CONNECTION - {"--token"} if path in OPERATOR_COMMANDS else CONNECTION)
    assert ("--token" in options) == (path not in OPERATOR_COMMANDS)
    assert any({"--key", "--cert-key"} <= set(parameter.opts) for parameter in COMMANDS[path].params) == (
        path not in OTHER_KEY
    )
    assert "--target" not in options or "--url" in options
    assert not any(parameter.name == "target" for parameter in COMMANDS[path].params)


def examples(help_text: str) -> list[str]:
    lines = help_text.partition("Example")[2].splitlines()[1:]
    return [line.strip() for line in lines if "toolmesh" in line]


ALL_COMMANDS = dict(walk(typer.main.get_command(build())))
LEAVES = sorted(path for path, command in ALL_COMMANDS.items() if not hasattr(command, "commands"))


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_shows_an_example_of_itself_that_parses(path: str) -> None:
    start = f"toolmesh {path}"
    shown = [line.partition(start)[2] for line in examples(ALL_COMMANDS[path].help or "") if start in line]
    assert shown, "no example"
    for rest in shown:
        # Without the shell's part: the end of a substitution, a pipe or a redirection.
        words = shlex.split(re.split(r"""\)"| [|>] """, rest)[0])
        ALL_COMMANDS[path].make_context(path, words)
