"""The settings of packs, volumes and workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.executor.config import existing_folders, named_volumes
from services.executor.domain.volumes import Volume


def test_folders_are_listed_with_commas(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert existing_folders(f"{tmp_path}/a, {tmp_path}") == (tmp_path / "a", tmp_path)


def test_a_folder_may_have_a_comma_in_its_name(tmp_path: Path) -> None:
    odd = tmp_path / "mine, yours=ours"
    odd.mkdir()
    assert existing_folders(str(odd)) == (odd,)
    volumes = (("a", Volume(odd.resolve())), ("b", Volume(tmp_path.resolve())))
    assert named_volumes(f"a={odd},b={tmp_path}") == volumes


@pytest.mark.parametrize("text", ["/nowhere", "", ",", "/etc/passwd"])
def test_a_folder_that_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        existing_folders(text)


def test_volumes_have_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert named_volumes(f"reports={tmp_path},in-box_2={tmp_path}/link") == (
        ("reports", Volume(tmp_path.resolve())),
        ("in-box_2", Volume(tmp_path.resolve())),
    )


def test_a_volume_is_shared_by_tenants_only_if_declared(tmp_path: Path) -> None:
    volumes = dict(named_volumes(f"reports={tmp_path},fonts={tmp_path}:shared,last={tmp_path}"))
    assert {name: volume.shared for name, volume in volumes.items()} == {"reports": False, "fonts": True, "last": False}
    assert {volume.folder for volume in volumes.values()} == {tmp_path.resolve()}


@pytest.mark.parametrize(
    "text",
    [
        "/tmp",
        "=/tmp",
        "A=/tmp",
        "../x=/tmp",
        "a=/nowhere",
        "a=",
        "a=/tmp,a=/tmp",
        "a/b=/tmp",
        "a=:shared",
        "a=/tmp:Shared",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        named_volumes(text)
