"""Commits of volumes: all or none, whenever the process is killed, and never after another call was told otherwise."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from services.executor.adapters.runners.workspace import apply_changes, journal
from services.executor.adapters.runners.workspace.apply_changes import VolumeBusyError, locked
from services.executor.adapters.runners.workspace.file_tree import COMMITS, STAGING, read_tree
from services.executor.adapters.runners.workspace.journal import (
    FORBIDDEN,
    VolumeChanges,
    commit_changes,
    forget_commit,
    recover_interrupted,
    resolve_commit,
)
from services.executor.adapters.runners.workspace.workspace import difference
from services.executor.domain.run import CommitState
from services.executor.tests.packing import MIB

BEFORE = {"a": "old", "gone": "x", "folder/in": "y"}
AFTER = {"a": "new", "folder": "a file now", "b/c": "deep"}
# More steps than a commit of two volumes takes.
MOST_STEPS = 60


def tree(folder: Path) -> dict[str, str]:
    """Return the files that a tool sees."""
    names = [name for name, digest in read_tree(folder, MIB).items() if digest != "folder"]
    return {name: (folder / name).read_text() for name in names}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def prepared(folder: Path, count: int) -> list[VolumeChanges]:
    """Return volumes with their copies, in which a run changed files, folders and both into each other."""
    parts = []
    for number in range(count):
        volume, copy = write(folder / f"v{number}", BEFORE), write(folder / f"c{number}", AFTER)
        parts.append(VolumeChanges(volume, copy, difference(read_tree(volume, MIB), read_tree(copy, MIB))))
    return parts


def killed_after(steps: int, commit: Callable[[], object]) -> bool:
    """Run a commit in another process that is killed after so many steps; return whether it was."""
    pid = os.fork()
    if pid == 0:
        try:
            count_steps(steps)
            commit()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def count_steps(steps: int) -> None:
    """Count every sync, rename and removal of this process, and kill it at one of them."""
    left = steps

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    for module in (apply_changes, journal):
        module.sync_path = counted(module.sync_path)  # type: ignore[attr-defined, assignment]
    for name in ("replace", "unlink", "rmdir", "mkdir"):
        setattr(Path, name, counted(getattr(Path, name)))


@pytest.mark.parametrize("count", [1, 2])
def test_a_commit_is_applied_in_all_volumes_or_in_none_whenever_it_is_killed(tmp_path: Path, count: int) -> None:
    states = set()
    for steps in range(MOST_STEPS):
        parts = prepared(tmp_path / str(steps), count)
        was_killed = killed_after(steps, lambda parts=parts: commit_changes("run", parts))  # type: ignore[misc]
        state = resolve_commit(parts[0].volume, "run", within=5)
        for part in parts[1:]:
            recover_interrupted(part.volume)
        expected = AFTER if state is CommitState.APPLIED else BEFORE
        assert [tree(part.volume) for part in parts] == [expected] * count, steps
        assert not any((part.volume / STAGING).exists() for part in parts)
        states.add(state)
        if not was_killed:
            break
    else:
        raise AssertionError("every commit was killed")
    assert states == {CommitState.APPLIED, CommitState.NOT_APPLIED}


def test_a_run_that_another_call_was_told_to_be_without_effect_cannot_commit(tmp_path: Path) -> None:
    [part] = prepared(tmp_path, 1)
    assert resolve_commit(part.volume, "run", within=5) is CommitState.NOT_APPLIED
    assert commit_changes("run", [part]).cause == FORBIDDEN
    assert tree(part.volume) == BEFORE


def test_the_next_commit_completes_the_one_that_was_killed(tmp_path: Path) -> None:
    [part] = prepared(tmp_path, 1)
    for steps in range(MOST_STEPS):
        assert killed_after(steps, lambda: commit_changes("run", [part]))
        if (part.volume / STAGING / "journal.json").exists():
            break
    copy = write(tmp_path / "other", {"d": "other"})
    other = VolumeChanges(part.volume, copy, difference({}, read_tree(copy, MIB)))
    assert commit_changes("other", [other]).cause == ""
    assert tree(part.volume) == AFTER | {"d": "other"}
    assert resolve_commit(part.volume, "run", within=5) is CommitState.APPLIED


def test_notes_are_never_shown_to_tools_and_are_forgotten(tmp_path: Path) -> None:
    [part] = prepared(tmp_path, 1)
    assert commit_changes("run", [part]).applied == len(part.changes)
    assert (part.volume / COMMITS / "run").exists()
    assert tree(part.volume) == AFTER
    old = part.volume / COMMITS / "ancient"
    old.write_text(CommitState.NOT_APPLIED)
    os.utime(old, (0, 0))
    forget_commit(part.volume, "run")
    assert list((part.volume / COMMITS).iterdir()) == []


def test_a_volume_that_is_being_changed_is_busy(tmp_path: Path) -> None:
    [part] = prepared(tmp_path, 1)
    with locked(part.volume):
        (part.volume / STAGING).mkdir()
        recover_interrupted(part.volume)
        with pytest.raises(VolumeBusyError):
            resolve_commit(part.volume, "run", within=0.05)
        assert (part.volume / STAGING).exists()


def test_a_note_that_the_machine_lost_half_of_is_unknown(tmp_path: Path) -> None:
    [part] = prepared(tmp_path, 1)
    (part.volume / COMMITS).mkdir()
    (part.volume / COMMITS / "run").write_text("")
    assert resolve_commit(part.volume, "run", within=5) is CommitState.UNKNOWN
