"""Packages of a pack on the author's side: installed once, known to the check, and refused by their hashes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from authoring.packs.check_pack import check_pack
from authoring.packs.pack_library import library_of
from services.executor.adapters.runners.packs.package_lock import WheelError
from services.executor.tests.wheels import make_wheel

WHEEL = "demo-1.0-py3-none-any.whl"
TOOLS = '''
from demo import ANSWER
from toolmesh_tool import tool


@tool(mutation_class="read_only")
def answer(times: int = ANSWER) -> int:
    """Answers the question."""
    return times
'''


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "answering"
    folder.mkdir()
    (folder / "pack.json").write_text(json.dumps({"name": "answering"}))
    (folder / "tools.py").write_text(TOOLS)
    return folder


def test_code_may_import_what_the_lock_brings(pack: Path) -> None:
    [missing, cannot] = [problem.message for problem in check_pack(pack, require_built=False).problems]
    assert "--add demo" in missing + cannot
    (pack / "requirements.lock").write_text(make_wheel(pack / "wheels", WHEEL, {"demo.py": "ANSWER = 42"}))
    checked = check_pack(pack, require_built=False)
    assert checked.problems == []
    assert checked.manifests["answer"]["input"]["schema"]["properties"]["times"]["default"] == 42
    library = library_of(pack)
    assert library is not None
    assert library_of(pack) == library


def test_a_changed_wheel_is_one_problem_of_the_lock(pack: Path) -> None:
    (pack / "requirements.lock").write_text(make_wheel(pack / "wheels", WHEEL, {"demo.py": "ANSWER = 42"}))
    make_wheel(pack / "wheels", WHEEL, {"demo.py": "ANSWER = 43"})
    with pytest.raises(WheelError):
        library_of(pack)
    places = [problem.path.name for problem in check_pack(pack, require_built=False).problems]
    assert places.count("requirements.lock") == 1
    assert "pack.json" not in places
