"""The file of operations that `toolmesh connect websocket` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from toolmesh_sdk.cli.commands.upstreams.connect_websocket import operations_of
from toolmesh_sdk.cli.exits import USAGE
from toolmesh_sdk.cli.main import build
from typer.testing import CliRunner


def test_every_member_has_its_field() -> None:
    described = {
        "name": "ask",
        "input": {"type": "object"},
        "output": {},
        "constants": {"method": "ask"},
        "arguments_member": "params",
        "id_member": "id",
        "error_member": "error",
        "description": "Asks.",
        "stream": True,
        "end": {"type": "complete"},
        "read_only": True,
    }
    [operation] = operations_of([described])
    assert (operation.name, operation.input_schema, operation.end) == (
        "ask",
        b'{"type": "object"}',
        b'{"type": "complete"}',
    )
    assert operation.stream
    assert operation.read_only


@pytest.mark.parametrize(
    "described",
    [{}, {"name": "ask"}, {"name": "ask", "input": []}, {"name": 1, "input": {}}, {"name": "a", "input": {}, "x": 1}],
)
def test_a_wrong_description_is_refused(described: dict[str, Any]) -> None:
    with pytest.raises(typer.BadParameter):
        operations_of([described])


@pytest.mark.parametrize("content", [None, "no JSON", "{}"])
def test_a_file_without_operations_is_wrong_usage(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "feed.json"
    if content is not None:
        file.write_text(content)
    command = ["connect", "websocket", "wss://feed.example.com/v1", "--operations", str(file)]
    assert CliRunner().invoke(build(plugins=()), command).exit_code == USAGE
