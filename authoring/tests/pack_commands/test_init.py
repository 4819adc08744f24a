"""`toolmesh pack init`: a pack that the next command accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
from toolmesh_sdk.cli.main import build
from typer.testing import CliRunner


def test_a_new_pack_passes_its_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written = CliRunner().invoke(build(), ["pack", "init", "greeter"])
    assert written.exit_code == 0
    assert "greeter/tools.py written" in written.stdout
    assert CliRunner().invoke(build(), ["pack", "check", "greeter"]).exit_code == 0
    # A second time it would overwrite the author's work.
    assert CliRunner().invoke(build(), ["pack", "init", "greeter"]).exit_code == 2


def test_a_name_that_no_executor_loads_is_refused(tmp_path: Path) -> None:
    refused = CliRunner().invoke(build(), ["pack", "init", str(tmp_path / "My-Tools")])
    assert refused.exit_code == 2
    assert not (tmp_path / "My-Tools").exists()
