"""Copying, measuring and hashing folder trees."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from services.executor.adapters.runners.workspace import file_tree
from services.executor.adapters.runners.workspace.file_tree import (
    STAGING,
    TreeTooLargeError,
    UnsupportedFileError,
    copy_tree,
    digest_of,
    read_tree,
)
from services.executor.adapters.sandbox.scratch.remove_tree import remove_tree
from services.executor.domain.tool import FOLDER

ROOM = 1 << 20


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "volume"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.txt").write_text("b")
    return folder


def test_a_copy_has_the_content_of_the_volume(volume: Path, tmp_path: Path) -> None:
    tree = copy_tree(volume, tmp_path / "copy", ROOM)
    assert tree == read_tree(tmp_path / "copy", ROOM) == read_tree(volume, ROOM)
    assert {path for path, digest in tree.items() if digest == FOLDER} == {"sub", "sub/deep"}
    assert tree["a.txt"] == digest_of(volume / "a.txt") != tree["sub/b.txt"]


def test_a_copy_shares_no_inode_with_the_original(volume: Path, tmp_path: Path) -> None:
    copy_tree(volume, tmp_path / "copy", ROOM)
    (tmp_path / "copy" / "a.txt").write_text("changed")
    assert (volume / "a.txt").read_text() == "a"


def test_a_copy_is_for_its_owner_alone(volume: Path, tmp_path: Path) -> None:
    (volume / "a.txt").chmod(0o400)
    copy_tree(volume, tmp_path / "copy", ROOM)
    assert stat.S_IMODE((tmp_path / "copy" / "a.txt").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "copy" / "sub").stat().st_mode) == 0o700


def test_links_devices_and_the_staging_folder_are_not_copied(volume: Path, tmp_path: Path) -> None:
    (volume / "link").symlink_to("/etc")
    (volume / "sub" / "file-link").symlink_to("b.txt")
    os.mkfifo(volume / "pipe")
    (volume / STAGING).mkdir()
    (volume / STAGING / "0").write_text("half")
    assert set(copy_tree(volume, tmp_path / "copy", ROOM)) == {"a.txt", "sub", "sub/b.txt", "sub/deep"}


@pytest.mark.parametrize("what", ["link", "dangling", "pipe", "name"])
def test_links_and_devices_after_a_run_are_refused(volume: Path, what: str) -> None:
    match what:
        case "link":
            (volume / "sub" / "x").symlink_to("b.txt")
        case "dangling":
            (volume / "x").symlink_to("/nowhere")
        case "pipe":
            os.mkfifo(volume / "x")
        case "name":
            os.close(os.open(os.fsencode(volume) + b"/\xff", os.O_CREAT))
    with pytest.raises(UnsupportedFileError):
        read_tree(volume, ROOM)


def test_the_size_limit_applies_to_copying_and_reading(volume: Path, tmp_path: Path) -> None:
    (volume / "big").write_bytes(b"x" * 2000)
    for room, fits in ((2002, True), (2001, False)):
        for nth, read in enumerate([lambda r: copy_tree(volume, tmp_path / f"{r}", r), lambda r: read_tree(volume, r)]):
            if fits:
                assert read(room), nth  # type: ignore[no-untyped-call]
            else:
                with pytest.raises(TreeTooLargeError):
                    read(room)  # type: ignore[no-untyped-call]


def test_a_sparse_file_counts_with_its_apparent_size(volume: Path) -> None:
    with (volume / "holes").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TreeTooLargeError):
        read_tree(volume, ROOM)


def test_depth_and_number_of_entries_are_bounded(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (volume / "/".join("d" * 70)).mkdir(parents=True)
    with pytest.raises(TreeTooLargeError):
        read_tree(volume, ROOM)
    remove_tree(volume / "d")
    monkeypatch.setattr(file_tree, "MAX_ENTRIES", 3)
    with pytest.raises(TreeTooLargeError):
        read_tree(volume, ROOM)


def test_entries_without_permissions_are_read(volume: Path) -> None:
    open_tree = read_tree(volume, ROOM)
    (volume / "sub" / "b.txt").chmod(0)
    (volume / "sub").chmod(0)
    assert read_tree(volume, ROOM) == open_tree


def test_entries_without_permissions_are_removed(volume: Path) -> None:
    (volume / "sub" / "deep").chmod(0)
    (volume / "sub").chmod(0)
    (volume / "link").symlink_to("sub")
    remove_tree(volume)
    assert not volume.exists()
    remove_tree(volume)


@pytest.mark.parametrize(("name", "times"), [("d", 1500), ("n" * 250, 20)])
def test_very_deep_folders_can_be_removed(volume: Path, name: str, times: int) -> None:
    """Deeper than the path length limit and the recursion limit."""
    nest(volume / "sub", name, times)
    assert len(str(volume)) + (len(name) + 1) * times > min(4096, 2 * sys.getrecursionlimit())
    remove_tree(volume)
    assert not volume.exists()


def nest(folder: Path, name: str, times: int) -> None:
    """Make folders in folders, and a file in the last."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        for _ in range(times):
            Path(name).mkdir()
            os.chdir(name)
        Path("file").write_bytes(b"x" * 100_000)
    finally:
        os.chdir(before)


def test_entries_that_disappear_during_the_copy_are_skipped(volume: Path, tmp_path: Path) -> None:
    """A concurrent commit must not fail the copy."""

    def wanted() -> bool:
        (volume / "a.txt").unlink(missing_ok=True)
        (volume / "sub" / "b.txt").unlink(missing_ok=True)
        return True

    assert copy_tree(volume, tmp_path / "copy", ROOM, wanted) == {"sub": FOLDER, "sub/deep": FOLDER}


def test_names_that_are_not_utf8_are_not_copied(volume: Path, tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(volume) + b"/\xff", os.O_CREAT))
    assert set(copy_tree(volume, tmp_path / "copy", ROOM)) == {"a.txt", "sub", "sub/b.txt", "sub/deep"}


def test_a_missing_path_and_another_type_have_different_digests(volume: Path) -> None:
    (volume / "link").symlink_to("a.txt")
    assert digest_of(volume / "gone") == digest_of(volume / "a.txt" / "below") == ""
    assert digest_of(volume / "link") not in ("", FOLDER, digest_of(volume / "a.txt"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    """A tool may open its copy to every user of the machine; what they put there is not the tool's."""
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "planted").touch()
    os.chown(copy / "planted", 4321, 4321)
    with pytest.raises(UnsupportedFileError):
        read_tree(copy, 1 << 20)
    os.chown(copy, 4321, 4321)
    assert set(read_tree(copy, 1 << 20)) == {"planted"}
