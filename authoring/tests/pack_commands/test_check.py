"""`toolmesh pack check`: problems as lines and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toolmesh_sdk.cli.main import build
from typer.testing import CliRunner

from authoring.packs.init_pack import init_pack


def test_problems_have_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init_pack(tmp_path / "greeter")
    monkeypatch.chdir(tmp_path)
    fine = CliRunner().invoke(build(), ["pack", "check", "greeter", "--json"])
    assert json.loads(fine.stdout) == {"pack": "greeter", "tools": ["greet"], "problems": [], "secrets": {}}
    (tmp_path / "greeter" / "tools.py").write_text("x = 1\nx = = 2\n")
    ran = CliRunner().invoke(build(), ["pack", "check", "greeter"])
    assert ran.exit_code == 1
    assert "greeter/tools.py:2: " in ran.stderr
    as_json = CliRunner().invoke(build(), ["pack", "check", "greeter", "--json"])
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["problems"][0]["line"] == 2
