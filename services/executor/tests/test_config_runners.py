"""The settings of packs, volumes and workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.executor.config import existing_folders, named_folders


def test_folders_are_listed_with_commas(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert existing_folders(f"{tmp_path}/a, {tmp_path}") == (tmp_path / "a", tmp_path)


def test_a_folder_may_have_a_comma_in_its_name(tmp_path: Path) -> None:
    odd = tmp_path / "mine, yours=ours"
    odd.mkdir()
    assert existing_folders(str(odd)) == (odd,)
    assert named_folders(f"a={odd},b={tmp_path}") == (("a", odd.resolve()), ("b", tmp_path.resolve()))


@pytest.mark.parametrize("text", ["/nowhere", "", ",", "/etc/passwd"])
def test_a_folder_that_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        existing_folders(text)


def test_volumes_have_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert named_folders(f"reports={tmp_path},in-box_2={tmp_path}/link") == (
        ("reports", tmp_path.resolve()),
        ("in-box_2", tmp_path.resolve()),
    )


@pytest.mark.parametrize(
    "text", ["/tmp", "=/tmp", "A=/tmp", "../x=/tmp", "a=/nowhere", "a=", "a=/tmp,a=/tmp", "a/b=/tmp"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        named_folders(text)
