from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from localmesh.state import files


def test_a_private_file_is_replaced_whole_and_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "secret"
    files.write_private(path, b"first")
    files.write_private(path, b"second")
    assert path.read_bytes() == b"second"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["secret"]


def test_what_could_not_be_written_leaves_the_old_content_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "document"
    files.write_private(path, b"first")

    def full(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="full"):
        files.write_private(path, b"second")
    assert path.read_bytes() == b"first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["document"]


@pytest.mark.parametrize("content", [b"", b"{broken", b"[1]", b"\xff"])
def test_what_is_no_object_reads_as_empty(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "document.json"
    path.write_bytes(content)
    assert files.read_json(path) == {}


def test_a_log_is_rotated_only_when_it_has_grown_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROTATE_BYTES", 10)
    log = tmp_path / "part.log"
    files.rotate(log)
    log.write_text("short")
    files.rotate(log)
    assert log.exists()
    log.write_text("longer than ten bytes")
    files.rotate(log)
    assert not log.exists()
    assert (tmp_path / "part.log.1").read_text() == "longer than ten bytes"


def test_a_log_is_moved_aside_under_the_hands_of_who_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROTATE_BYTES", 10)
    log = tmp_path / "part.log"
    (tmp_path / "part.log.1").write_text("an older one")
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(descriptor, b"short\n")
        files.rotate_in_use(log)
        assert log.read_text() == "short\n"
        os.write(descriptor, b"no longer short\n")
        files.rotate_in_use(log)
        os.write(descriptor, b"later\n")
    finally:
        os.close(descriptor)
    assert log.read_text() == "later\n"
    assert (tmp_path / "part.log.1").read_text() == "short\nno longer short\n"
    assert stat.S_IMODE((tmp_path / "part.log.1").stat().st_mode) == 0o600


@pytest.mark.parametrize("length", [1_000, 100_000])
def test_long_lines_are_shown_whole(tmp_path: Path, length: int) -> None:
    log = tmp_path / "part.log"
    lines = [str(number) * length for number in range(5)]
    log.write_text("\n".join(lines) + "\n")
    assert files.last_lines(log, 2) == lines[-2:]
    assert files.last_lines(log, 9) == lines
    assert files.last_lines(log, 9, begin=length + 1) == lines[1:]


def test_the_last_lines_are_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_text("".join(f"line {number}\n" for number in range(5000)))
    assert files.last_lines(log, 2) == ["line 4998", "line 4999"]
    assert files.last_lines(log, 0) == []
    assert files.last_lines(tmp_path / "none", 5) == []
