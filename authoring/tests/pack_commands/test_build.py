"""`toolmesh pack build`: writes manifests, and finds stale ones."""

from __future__ import annotations

import shutil
from pathlib import Path

from toolmesh_sdk.cli.main import build
from typer.testing import CliRunner

EXAMPLE = Path(__file__).parents[3] / "examples" / "packs" / "wordkit"


def run(*arguments: str) -> int:
    return CliRunner().invoke(build(), ["pack", "build", *arguments]).exit_code


def test_the_example_is_up_to_date() -> None:
    assert run(str(EXAMPLE), "--check") == 0


def test_manifests_are_written_and_a_stale_one_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "wordkit"
    shutil.copytree(EXAMPLE, folder)
    manifest = folder / "manifests" / "frequent_words.json"
    committed = manifest.read_text()
    manifest.unlink()
    assert run(str(folder), "--check") == 1
    assert not manifest.exists()
    assert run(str(folder)) == 0
    assert manifest.read_text() == committed
    module = folder / "words.py"
    module.write_text(module.read_text().replace("top: int = 3", "top: int = 4"))
    assert run(str(folder), "--check") == 1
    assert run(str(folder)) == 0
    assert run(str(folder), "--check") == 0


def test_a_problem_keeps_everything_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "wordkit"
    shutil.copytree(EXAMPLE, folder)
    module = folder / "words.py"
    module.write_text(module.read_text().replace("top: int = 3", "top = 3"))
    manifest = folder / "manifests" / "frequent_words.json"
    before = manifest.read_text()
    assert run(str(folder)) == 1
    assert manifest.read_text() == before
