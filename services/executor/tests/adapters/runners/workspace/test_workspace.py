"""Workspaces: changes are observed, and applied only by a commit."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.errors import MeshError, Reason
from services.executor.adapters.runners.worker.worker import WorkerGoneError
from services.executor.adapters.runners.workspace.file_tree import STAGING, read_tree
from services.executor.adapters.runners.workspace.journal import VolumeChanges, commit_changes
from services.executor.adapters.runners.workspace.workspace import Volumes, Workspace, difference
from services.executor.adapters.sandbox.port import ExitKind, ExitReport
from services.executor.adapters.sandbox.scratch.bounded_scratch import BoundedScratch, ScratchFolder
from services.executor.domain.tool import FOLDER, Access
from services.executor.domain.volumes import Volume
from services.executor.tests.packing import MIB, confined, python_tool
from services.executor.tests.waiting import until


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "volume"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.txt").write_text("b")
    return folder


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[BoundedScratch]:
    folder = tmp_path / "scratch"
    folder.mkdir()
    scratch = BoundedScratch(lambda: folder)
    yield scratch
    scratch.close()


def is_empty(scratch: BoundedScratch) -> bool:
    return not list(scratch._folder().iterdir())


def tool(**changes: Any) -> Any:
    reach = {"access": Access.FILES, "reads": ("files",), "writes": ("files",), **changes}
    return python_tool("x/y:z", confinement=confined(**reach))


def volumes_of(volume: Path, scratch: BoundedScratch) -> Volumes:
    """One volume that all tenants share, so that tests find its files in the folder itself."""
    return Volumes({"files": Volume(volume, shared=True)}, scratch)


async def opened(volume: Path, scratch: BoundedScratch, **changes: Any) -> tuple[Workspace, Path]:
    workspace = await volumes_of(volume, scratch).open(tool(**changes), "acme")
    return workspace, workspace._copies[0].folder


async def effects(workspace: Workspace) -> list[tuple[str, str]]:
    effects = await workspace.observe_effects()
    assert all(effect.observed for effect in effects)
    return [(effect.operation, effect.resource) for effect in effects]


async def test_a_run_that_changes_nothing_has_no_effects(volume: Path, scratch: BoundedScratch) -> None:
    workspace, _ = await opened(volume, scratch)
    assert await effects(workspace) == []
    await workspace.rollback()
    assert is_empty(scratch)


async def test_changes_are_observed_and_committed(volume: Path, scratch: BoundedScratch) -> None:
    workspace, copy = await opened(volume, scratch)
    (copy / "a.txt").write_text("A")
    (copy / "new").mkdir()
    (copy / "new" / "c.txt").write_text("c")
    (copy / "sub" / "b.txt").unlink()
    (copy / "sub").rmdir()
    before = (volume / "a.txt").read_text()
    assert await effects(workspace) == [
        ("delete", "file:files/sub/b.txt"),
        ("delete", "file:files/sub"),
        ("update", "file:files/a.txt"),
        ("create", "file:files/new"),
        ("create", "file:files/new/c.txt"),
    ]
    assert (volume / "a.txt").read_text() == before
    expected = read_tree(copy, MIB)
    await workspace.commit("run")
    assert read_tree(volume, MIB) == expected
    assert is_empty(scratch)
    assert not (volume / STAGING).exists()


async def test_a_rollback_leaves_the_volume_unchanged(volume: Path, scratch: BoundedScratch) -> None:
    before = read_tree(volume, MIB)
    workspace, copy = await opened(volume, scratch)
    (copy / "a.txt").write_text("A")
    await workspace.observe_effects()
    await workspace.rollback()
    await workspace.rollback()
    assert read_tree(volume, MIB) == before
    assert is_empty(scratch)


async def test_a_change_with_restored_times_is_observed(volume: Path, scratch: BoundedScratch) -> None:
    workspace, copy = await opened(volume, scratch)
    before = (copy / "a.txt").stat()
    (copy / "a.txt").write_text("!")
    os.utime(copy / "a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert await effects(workspace) == [("update", "file:files/a.txt")]


@pytest.mark.parametrize(("was", "becomes"), [("a.txt", "folder"), ("sub", "file")])
async def test_a_file_can_replace_a_folder_and_the_reverse(
    volume: Path, scratch: BoundedScratch, was: str, becomes: str
) -> None:
    workspace, copy = await opened(volume, scratch)
    if becomes == "folder":
        (copy / was).unlink()
        (copy / was).mkdir()
        (copy / was / "inner").write_text("i")
    else:
        (copy / was / "b.txt").unlink()
        (copy / was).rmdir()
        (copy / was).write_text("now a file")
    await workspace.observe_effects()
    expected = read_tree(copy, MIB)
    await workspace.commit("run")
    assert read_tree(volume, MIB) == expected


async def test_a_commit_keeps_modes_and_owners_of_the_volume(volume: Path, scratch: BoundedScratch) -> None:
    (volume / "a.txt").chmod(0o640)
    workspace, copy = await opened(volume, scratch)
    for name in ("a.txt", "new"):
        (copy / name).write_text("#!/bin/sh\n")
        (copy / name).chmod(0o6777)
    await workspace.observe_effects()
    await workspace.commit("run")
    modes = {name: stat.S_IMODE((volume / name).stat().st_mode) for name in ("a.txt", "new")}
    assert modes == {"a.txt": 0o640, "new": 0o644}
    assert (volume / "new").stat().st_uid == (volume / "sub").stat().st_uid


@pytest.mark.parametrize("what", ["link", "pipe"])
async def test_an_unsupported_entry_fails_the_run(volume: Path, scratch: BoundedScratch, what: str) -> None:
    workspace, copy = await opened(volume, scratch)
    (copy / "x").symlink_to("/etc/passwd") if what == "link" else os.mkfifo(copy / "x")
    with pytest.raises(MeshError) as caught:
        await workspace.observe_effects()
    assert caught.value.reason is Reason.EXECUTION_FAILED


# Others who change the volume meanwhile.


@pytest.mark.parametrize("who", ["changed", "removed", "created", "made a link"])
async def test_a_commit_fails_if_the_volume_changed_meanwhile(volume: Path, scratch: BoundedScratch, who: str) -> None:
    workspace, copy = await opened(volume, scratch)
    (copy / "a.txt").write_text("A")
    (copy / "new.txt").write_text("new")
    (copy / "sub" / "b.txt").write_text("B")
    await workspace.observe_effects()
    match who:
        case "changed":
            (volume / "sub" / "b.txt").write_text("theirs")
        case "removed":
            (volume / "a.txt").unlink()
        case "created":
            (volume / "new.txt").write_text("theirs")
        case "made a link":
            (volume / "new.txt").symlink_to("/etc/passwd")
    before = read_tree(volume, MIB) if who != "made a link" else None
    with pytest.raises(MeshError) as caught:
        await workspace.commit("run")
    assert caught.value.reason is Reason.PARTIAL_FAILURE
    assert caught.value.metadata == {"kept": "0", "changes": "3", "cause": "changed"}
    assert workspace.committed() == ()
    assert before is None or read_tree(volume, MIB) == before
    assert is_empty(scratch)


async def test_a_commit_does_not_follow_links(volume: Path, scratch: BoundedScratch, tmp_path: Path) -> None:
    workspace, copy = await opened(volume, scratch)
    (copy / "sub" / "c.txt").write_text("c")
    await workspace.observe_effects()
    outside = tmp_path / "outside"
    outside.mkdir()
    (volume / "sub" / "b.txt").unlink()
    (volume / "sub").rmdir()
    (volume / "sub").symlink_to(outside)
    with pytest.raises(MeshError):
        await workspace.commit("run")
    assert list(outside.iterdir()) == []


async def test_a_commit_succeeds_if_only_other_paths_changed(volume: Path, scratch: BoundedScratch) -> None:
    workspace, copy = await opened(volume, scratch)
    (copy / "a.txt").write_text("A")
    await workspace.observe_effects()
    (volume / "theirs.txt").write_text("theirs")
    await workspace.commit("run")
    assert (volume / "a.txt").read_text() == "A"
    assert (volume / "theirs.txt").read_text() == "theirs"


async def test_of_two_commits_to_one_file_one_fails(volume: Path, scratch: BoundedScratch) -> None:
    runs = [await opened(volume, scratch) for _ in range(4)]
    for nth, (workspace, copy) in enumerate(runs):
        (copy / "a.txt").write_text(f"from {nth}")
        await workspace.observe_effects()
    kept = await asyncio.gather(
        *(workspace.commit(f"run-{nth}") for nth, (workspace, _) in enumerate(runs)), return_exceptions=True
    )
    winners = [nth for nth, outcome in enumerate(kept) if outcome is None]
    assert len(winners) == 1
    assert (volume / "a.txt").read_text() == f"from {winners[0]}"


async def test_a_partial_commit_reports_how_many_changes_were_applied(volume: Path, scratch: BoundedScratch) -> None:
    (volume / "sub" / "hidden").symlink_to("/nowhere")
    workspace, copy = await opened(volume, scratch)
    # The link was never shown, so the folder looks empty inside; outside it cannot be removed.
    (copy / "sub" / "b.txt").unlink()
    (copy / "sub").rmdir()
    await workspace.observe_effects()
    with pytest.raises(MeshError) as caught:
        await workspace.commit("run")
    assert caught.value.metadata == {"kept": "1", "changes": "2", "cause": "failed"}


def test_the_staging_folder_of_a_killed_executor_is_removed(volume: Path, tmp_path: Path) -> None:
    (volume / STAGING).mkdir()
    (volume / STAGING / "0").write_text("half")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "n").write_text("n")
    changes = difference({}, read_tree(copy, MIB))
    assert commit_changes("run", [VolumeChanges(volume, copy, changes)]).applied == 1
    assert not (volume / STAGING).exists()


# Room.


async def test_a_writable_volume_must_fit_into_the_scratch_space(volume: Path, scratch: BoundedScratch) -> None:
    (volume / "big").write_bytes(b"x" * 2 * MIB)
    with pytest.raises(MeshError) as caught:
        await opened(volume, scratch, scratch_bytes=MIB)
    assert caught.value.reason is Reason.RESOURCE_LIMIT_EXCEEDED
    await until(lambda: is_empty(scratch))


async def test_a_read_only_volume_that_does_not_fit_is_bound(volume: Path, scratch: BoundedScratch) -> None:
    (volume / "big").write_bytes(b"x" * 2 * MIB)
    volumes = volumes_of(volume, scratch)
    workspace = await volumes.open(tool(scratch_bytes=MIB, writes=()), "acme")
    assert workspace.writable == ()
    assert workspace.readable == ((str(volume), "/volumes/files"),)
    assert await workspace.observe_effects() == ()
    await workspace.rollback()


async def test_a_run_that_exceeds_its_scratch_space_fails(volume: Path, scratch: BoundedScratch) -> None:
    workspace, copy = await opened(volume, scratch, scratch_bytes=MIB)
    (copy / "big").write_bytes(b"x" * 2 * MIB)
    with pytest.raises(MeshError) as caught:
        await workspace.observe_effects()
    assert caught.value.reason is Reason.RESOURCE_LIMIT_EXCEEDED
    assert caught.value.metadata["limit"] == "scratch"


async def test_block_rounding_of_the_original_is_not_counted(
    volume: Path, scratch: BoundedScratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files take more of the disk than they hold."""
    for nth in range(1000):
        (volume / f"{nth}").write_text("x")
    workspace, _ = await opened(volume, scratch, scratch_bytes=MIB)
    looked, killed = asyncio.Queue[int](), list[str]()
    loop, measure = asyncio.get_running_loop(), ScratchFolder.used_bytes

    def look(folder: ScratchFolder) -> int:
        used = measure(folder)
        loop.call_soon_threadsafe(looked.put_nowait, used)
        return used

    async def kill() -> None:
        killed.append("killed")

    async def step() -> list[int]:
        return [await looked.get() for _ in range(3)]

    monkeypatch.setattr(ScratchFolder, "used_bytes", look)
    assert min(await workspace.run_watched(kill, step())) > MIB
    assert killed == []
    await workspace.rollback()


async def test_a_size_violation_is_reported_before_the_error_of_the_killed_process(
    volume: Path, scratch: BoundedScratch
) -> None:
    workspace, copy = await opened(volume, scratch, scratch_bytes=MIB)
    (copy / "big").write_bytes(b"x" * 2 * MIB)
    struck, told = asyncio.Event(), asyncio.Event()

    async def kill() -> None:
        struck.set()
        await told.wait()

    async def step() -> None:
        await struck.wait()
        raise WorkerGoneError(ExitReport(ExitKind.KILLED))

    with pytest.raises(MeshError) as caught:
        await workspace.run_watched(kill, step())
    assert caught.value.reason is Reason.RESOURCE_LIMIT_EXCEEDED
    await workspace.rollback()


def test_only_existing_volumes_are_available(volume: Path, scratch: BoundedScratch) -> None:
    volumes = volumes_of(volume, scratch)
    assert volumes.missing_for(tool()) == []
    assert volumes.missing_for(tool(reads=("files", "others"))) == ["others"]


# The difference of two file_tree.

PATHS = st.sampled_from(["a", "b", "a/x", "a/y", "a/x/1", "c", "c/z"])


def whole(leaves: dict[str, str]) -> dict[str, str]:
    """A tree in which every file is in folders."""
    tree: dict[str, str] = {}
    for path, content in leaves.items():
        steps = path.split("/")
        above = ["/".join(steps[:nth]) for nth in range(1, len(steps))]
        if not any(tree.get(each, FOLDER) != FOLDER for each in above) and path not in tree:
            tree.update(dict.fromkeys(above, FOLDER))
            tree[path] = content
    return tree


TREES = st.dictionaries(PATHS, st.sampled_from(["1", "2", FOLDER]), max_size=6).map(whole)


@given(before=TREES, after=TREES)
def test_the_difference_turns_one_tree_into_the_other(before: dict[str, str], after: dict[str, str]) -> None:
    tree = dict(before)
    for change in difference(before, after):
        path, parent = change.relative, change.relative.rpartition("/")[0]
        assert tree.get(path, "") == change.before
        if change.after:
            assert not parent or tree[parent] == FOLDER
            tree[path] = change.after
        else:
            assert not any(other.startswith(f"{path}/") for other in tree)
            del tree[path]
        if change.before == FOLDER:
            assert change.after == "" or not any(other.startswith(f"{path}/") for other in tree)
    assert tree == after
