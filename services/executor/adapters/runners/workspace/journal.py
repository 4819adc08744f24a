"""Commits the changes of a run to its volumes, all or none, also if the process is killed meanwhile.

All changes are staged beside the volumes and described in a journal in each of them. The journal of the first volume
decides: once it is in place, the commit happens, and the next process that locks a volume completes what a killed one
began. Without it the staged files are dropped.

The first volume keeps a note of the commit under the id of its invocation until the outcome is settled, so that another
process can tell whether the changes were applied. A process that asks and finds no note leaves one that forbids the
commit: an owner that was suspended and resumes cannot apply its changes after another call was told that there are
none.

Blocking: run it in a thread.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from services.executor.adapters.runners.workspace.apply_changes import (
    Change,
    VolumeBusyError,
    apply_staged,
    is_unchanged,
    locked,
    stage_changes,
    sync_path,
)
from services.executor.adapters.runners.workspace.file_tree import COMMITS, STAGING
from services.executor.domain.run import CommitState

CHANGED, FAILED, FORBIDDEN = "changed", "failed", "forbidden"
_JOURNAL = "journal.json"
# Longer than any idempotency key is remembered whose owner died.
_NOTE_SECONDS = 60 * 86_400.0
_SWEPT_NOTES = 64


class Journal(msgspec.Struct, frozen=True):
    """The journal of one volume: which commit it belongs to, and the changes there."""

    commit: str
    decides: bool
    """True in the first volume."""
    volumes: tuple[str, ...]
    """The folders of all volumes of the commit, the first one first."""
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class VolumeChanges:
    """The changes of one volume, and the copy that holds the new content."""

    volume: Path
    copy: Path
    changes: Sequence[Change]


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The number of applied changes, and why the rest was not applied."""

    applied: int
    cause: str = ""


def commit_changes(commit: str, parts: Sequence[VolumeChanges]) -> ApplyResult:
    """Apply the changes of a run to its volumes. Nothing is applied if a volume changed where the run changed it."""
    parts = sorted((part for part in parts if part.changes), key=lambda part: part.volume)
    if not parts:
        return ApplyResult(0)
    try:
        with ExitStack() as locks:
            for part in parts:
                locks.enter_context(locked(part.volume))
                _recover(part.volume)
            return _commit(commit, parts)
    except OSError:
        return ApplyResult(0, FAILED)


def recover_interrupted(volume: Path) -> None:
    """Complete or drop the commit of a killed process, if there is one and no other process is at it."""
    if (volume / STAGING).exists():
        with suppress(VolumeBusyError, OSError), locked(volume, 0.0):
            _recover(volume)


def resolve_commit(volume: Path, commit: str, *, within: float) -> CommitState:
    """Return whether a commit whose first volume this is was applied. If it was not, it never will be.

    Raises VolumeBusyError if another process holds the volume for longer than `within` seconds.
    """
    with locked(volume, within):
        _recover(volume)
        note = _read_note(volume, commit)
        if note is None:
            _write_note(volume, commit, CommitState.NOT_APPLIED)
        return note or CommitState.NOT_APPLIED


def forget_commit(volume: Path, commit: str) -> None:
    """Remove the note of a commit whose outcome is settled, and a few old ones of processes that were killed."""
    folder = volume / COMMITS
    (folder / commit).unlink(missing_ok=True)
    before = time.time() - _NOTE_SECONDS
    with suppress(FileNotFoundError), os.scandir(folder) as notes:
        for note, _ in zip(notes, range(_SWEPT_NOTES), strict=False):
            if note.stat(follow_symlinks=False).st_mtime < before:
                Path(note.path).unlink(missing_ok=True)


def _commit(commit: str, parts: Sequence[VolumeChanges]) -> ApplyResult:
    first = parts[0].volume
    if _read_note(first, commit) is not None:
        return ApplyResult(0, FORBIDDEN)
    if any(not is_unchanged(part.volume, change) for part in parts for change in part.changes):
        return ApplyResult(0, CHANGED)
    volumes = tuple(str(part.volume) for part in parts)
    try:
        # The first volume comes last: its journal decides.
        for part in reversed(parts):
            stage_changes(part.volume, part.copy, part.changes)
            _write_journal(part.volume, Journal(commit, part is parts[0], volumes, tuple(part.changes)))
    except OSError:
        for part in parts:
            _clear(part.volume)
        return ApplyResult(0, FAILED)
    applied, state = 0, CommitState.APPLIED
    try:
        for part in parts:
            for _ in apply_staged(part.volume, part.changes):
                applied += 1
    except OSError:
        state = CommitState.UNKNOWN
    _write_note(first, commit, state)
    for part in reversed(parts):
        _clear(part.volume)
    return ApplyResult(applied, "" if state is CommitState.APPLIED else FAILED)


def _recover(volume: Path) -> None:
    """Complete the commit that a killed process decided, or drop one that it did not. The lock is held."""
    if not (volume / STAGING).exists():
        return
    journal = _read_journal(volume)
    if journal is None:
        _clear(volume)
    elif journal.decides:
        _complete(volume, journal)
    else:
        # The decision is final by now: its process held this lock until it ended.
        if _is_decided(Path(journal.volumes[0]), journal.commit):
            with suppress(OSError):
                _apply_all(volume, journal)
        _clear(volume)


def _complete(volume: Path, journal: Journal) -> None:
    """Apply the rest of a decided commit in all of its volumes, and note it."""
    state = CommitState.APPLIED
    try:
        _apply_all(volume, journal)
        for other in map(Path, journal.volumes[1:]):
            with locked(other):
                _recover(other)
    except OSError:
        state = CommitState.UNKNOWN
    _write_note(volume, journal.commit, state)
    _clear(volume)


def _apply_all(volume: Path, journal: Journal) -> None:
    for _ in apply_staged(volume, journal.changes):
        pass


def _is_decided(first: Path, commit: str) -> bool:
    """Return whether the first volume has the journal of the commit, or the note that follows it."""
    journal = _read_journal(first)
    if journal is not None and journal.commit == commit:
        return True
    return _read_note(first, commit) in (CommitState.APPLIED, CommitState.UNKNOWN)


def _read_journal(volume: Path) -> Journal | None:
    try:
        return msgspec.json.decode((volume / STAGING / _JOURNAL).read_bytes(), type=Journal)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _write_journal(volume: Path, journal: Journal) -> None:
    staging = volume / STAGING
    draft = staging / f"{_JOURNAL}.draft"
    draft.write_bytes(msgspec.json.encode(journal))
    sync_path(draft)
    sync_path(staging)
    draft.replace(staging / _JOURNAL)
    sync_path(staging)
    sync_path(volume)


def _clear(volume: Path) -> None:
    staging = volume / STAGING
    # First the journal: staged files without one are dropped.
    with suppress(OSError):
        (staging / _JOURNAL).unlink(missing_ok=True)
    shutil.rmtree(staging, ignore_errors=True)


def _read_note(volume: Path, commit: str) -> CommitState | None:
    try:
        return CommitState((volume / COMMITS / commit).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        # The machine failed before the note was on disk.
        return CommitState.UNKNOWN


def _write_note(volume: Path, commit: str, state: CommitState) -> None:
    folder = volume / COMMITS
    folder.mkdir(mode=0o700, exist_ok=True)
    draft = folder / f"{commit}.draft"
    draft.write_text(state)
    sync_path(draft)
    draft.replace(folder / commit)
    sync_path(folder)
