"""Installed packs: replaced as a whole, without former versions, and unchanged by a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from authoring.packs.init_pack import init_pack
from authoring.packs.install_pack import VERSIONS, install_pack
from services.executor.adapters.runners.packs.packs import PackError, copy_pack


@pytest.fixture
def source(tmp_path: Path) -> Path:
    init_pack(tmp_path / "greeter")
    return tmp_path / "greeter"


def test_a_pack_is_what_an_executor_loads(source: Path, tmp_path: Path) -> None:
    installed = install_pack(source, tmp_path / "packs")
    loaded = copy_pack(tmp_path / "packs" / "greeter", tmp_path / "copy")
    assert loaded.digest == installed.digest
    assert install_pack(source, tmp_path / "packs").digest == installed.digest


def test_a_new_version_replaces_the_former(source: Path, tmp_path: Path) -> None:
    packs = tmp_path / "packs"
    init_pack(tmp_path / "greeter_two")
    other = install_pack(tmp_path / "greeter_two", packs)
    install_pack(source, packs)
    (source / "tools.py").write_text("x = 1\n")
    second = install_pack(source, packs)
    assert (packs / "greeter" / "tools.py").read_text() == "x = 1\n"
    names = {f"{pack.name}-{pack.digest.partition(':')[2]}" for pack in (second, other)}
    assert {path.name for path in (packs / VERSIONS).iterdir()} == names


def test_a_pack_that_cannot_be_copied_changes_nothing(source: Path, tmp_path: Path) -> None:
    packs = tmp_path / "packs"
    install_pack(source, packs)
    before = sorted(path.name for path in (packs / VERSIONS).iterdir())
    (source / "pack.json").write_text('{"name": "greeter", "colour": 1}')
    with pytest.raises(PackError):
        install_pack(source, packs)
    assert sorted(path.name for path in (packs / VERSIONS).iterdir()) == before
    assert (packs / "greeter" / "pack.json").read_text() == '{"name": "greeter"}\n'
