"""Seccomp profiles on a node: what is written, what is put back, what stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localmesh.deploy.place_profiles import place_profiles

ONE, OTHER = "toolmesh-executor-v1.json", "toolmesh-executor-v2.json"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The folder of a ConfigMap, as the kubelet mounts it, and that of a node."""
    content, source, target = (tmp_path / name for name in ("content", "source", "target"))
    for folder in (content, source, target):
        folder.mkdir()
    (content / OTHER).write_text("two")
    (source / "..data").symlink_to(content)
    (source / OTHER).symlink_to(Path("..data") / OTHER)
    return source, target


def test_profiles_are_placed_once_and_put_back_when_lost_or_changed(folders: tuple[Path, Path]) -> None:
    source, target = folders
    assert place_profiles(source, target) == [OTHER]
    assert ((target / OTHER).read_text(), (target / OTHER).is_symlink()) == ("two", False)
    assert (target / OTHER).stat().st_mode & 0o777 == 0o644
    assert place_profiles(source, target) == []
    (target / OTHER).write_text("tw")
    assert place_profiles(source, target) == [OTHER]
    (target / OTHER).unlink()
    assert place_profiles(source, target) == [OTHER]


def test_what_is_not_given_stays(folders: tuple[Path, Path]) -> None:
    source, target = folders
    (source / "notes.txt").write_text("no profile")
    (target / ONE).write_text("one")
    (target / "profile.json").write_text("another's")
    place_profiles(source, target)
    assert {path.name for path in target.iterdir()} == {ONE, OTHER, "profile.json"}
    assert (target / ONE).read_text() == "one"


def test_a_profile_that_cannot_be_written_whole_does_not_appear(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = folders

    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "chmod", fail)
    monkeypatch.setattr(Path, "chmod", fail)
    with pytest.raises(OSError, match="no space"):
        place_profiles(source, target)
    assert list(target.iterdir()) == []
