"""Folders of limited size in a mount namespace of their own."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.executor.adapters.sandbox.scratch.bounded_scratch import BoundedScratch

MIB = 1 << 20


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[BoundedScratch]:
    scratch = BoundedScratch(lambda: tmp_path)
    yield scratch
    scratch.close()


def test_deleted_open_files_count(scratch: BoundedScratch) -> None:
    folder = scratch.create(2 * MIB, 100)
    with (folder.path / "x").open("wb", buffering=0) as held:
        (folder.path / "x").unlink()
        held.write(b"x" * MIB)
        assert folder.used_bytes() >= MIB
        with pytest.raises(OSError) as caught:
            (folder.path / "y").write_bytes(b"y" * 2 * MIB)
        assert caught.value.errno == errno.ENOSPC


def test_entries_are_bounded(scratch: BoundedScratch) -> None:
    folder = scratch.create(MIB, 10)
    with pytest.raises(OSError) as caught:
        for number in range(10):
            (folder.path / f"{number}").touch()
    assert caught.value.errno == errno.ENOSPC


def test_a_size_can_be_reduced_but_not_below_what_is_used(scratch: BoundedScratch) -> None:
    folder = scratch.create(4 * MIB, 100)
    (folder.path / "x").write_bytes(b"x" * MIB)
    folder.resize(2 * MIB)
    with pytest.raises(OSError):
        folder.resize(MIB // 2)


def test_no_other_process_sees_the_content(scratch: BoundedScratch, tmp_path: Path) -> None:
    folder = scratch.create(MIB, 100)
    (folder.path / "x").touch(mode=0o600)
    assert list((tmp_path / folder.source.name).iterdir()) == []
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.remove()
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_is_replaced(scratch: BoundedScratch) -> None:
    lost = scratch.create(MIB, 100)
    os.kill(scratch.pid, signal.SIGKILL)
    os.waitid(os.P_PID, scratch.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(OSError):
        lost.used_bytes()
    assert scratch.create(MIB, 100).used_bytes() < MIB


def test_what_cannot_be_mounted_is_an_error(tmp_path: Path) -> None:
    scratch = BoundedScratch(lambda: tmp_path / "absent")
    with pytest.raises(OSError):
        scratch.create(MIB, 100)
    scratch.close()
