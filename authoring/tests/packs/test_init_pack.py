"""New packs: complete, short, and only under names that an executor loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from authoring.packs.check_pack import check_pack
from authoring.packs.init_pack import MODULE, PackNameError, init_pack


def test_a_new_pack_has_no_problem(tmp_path: Path) -> None:
    written = init_pack(tmp_path / "deep" / "greeter")
    assert {path.name for path in written} == {"pack.json", "tools.py", "greet.json"}
    checked = check_pack(tmp_path / "deep" / "greeter")
    assert checked.problems == []
    assert checked.manifests["greet"]["namespace"] == "greeter"
    assert checked.digest.startswith("sha256:")


def test_its_tool_is_ten_lines() -> None:
    assert len([line for line in MODULE.splitlines() if line.strip()]) <= 10


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "greeter").mkdir()
    with pytest.raises(FileExistsError):
        init_pack(tmp_path / "greeter")
    assert list((tmp_path / "greeter").iterdir()) == []


@pytest.mark.parametrize("name", ["My-Tools", "json", "x", "toolmesh_tool", "7zip", "a" * 64, "größe"])
def test_a_refused_name_comes_with_one_that_works(tmp_path: Path, name: str) -> None:
    with pytest.raises(PackNameError) as refused:
        init_pack(tmp_path / name)
    proposal = str(refused.value).rpartition("write ")[2]
    assert init_pack(tmp_path / proposal)
