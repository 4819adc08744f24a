"""The folder of a backup: complete and authentic, or refused."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localmesh.cluster_backup.backup_folder import DATABASE, MANIFEST, SECRETS, BackupReader, BackupWriter, LogHead
from localmesh.cluster_backup.errors import BackupError
from localmesh.tests.cluster_backup.conftest import PASSPHRASE

LOG = LogHead("log", 300, 0, 256)


def write(folder: Path) -> Path:
    writer = BackupWriter(folder, PASSPHRASE)
    writer.write(DATABASE, [b"rows"])
    writer.write(SECRETS, [b"keys"])
    writer.finish("0.1.0", "2026-05-01T10:00:00+00:00", {"audit": "0006"}, LOG)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "backup")


def changed(folder: Path, **changes: Any) -> None:
    document = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**document, **changes}))


def test_what_was_written_comes_back_and_is_its_owners_alone(folder: Path) -> None:
    reader = BackupReader(folder, PASSPHRASE)
    reader.verify()
    assert (b"".join(reader.read(DATABASE)), b"".join(reader.read(SECRETS))) == (b"rows", b"keys")
    assert (reader.manifest.log, reader.manifest.revisions) == (LOG, {"audit": "0006"})
    assert [path.name for path in folder.iterdir() if stat.S_IMODE(path.stat().st_mode) != 0o600] == []


def test_another_passphrase_and_a_changed_manifest_are_refused(folder: Path) -> None:
    with pytest.raises(BackupError):
        BackupReader(folder, b"another passphrase")
    changed(folder, revisions={"audit": "0001"})
    with pytest.raises(BackupError):
        BackupReader(folder, PASSPHRASE)


@pytest.mark.parametrize("name", [DATABASE, SECRETS])
def test_a_file_that_is_missing_or_of_another_backup_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    other = write(tmp_path / "other")
    (folder / name).write_bytes((other / name).read_bytes())
    with pytest.raises(BackupError):
        BackupReader(folder, PASSPHRASE).verify()
    (folder / name).unlink()
    with pytest.raises(BackupError):
        BackupReader(folder, PASSPHRASE).verify()


def test_a_backup_that_was_interrupted_is_refused_and_may_be_written_again(tmp_path: Path) -> None:
    def interrupted() -> Iterator[bytes]:
        yield b"rows"
        raise BackupError("the server went away")

    folder = tmp_path / "backup"
    with pytest.raises(BackupError):
        BackupWriter(folder, PASSPHRASE).write(DATABASE, interrupted())
    with pytest.raises(BackupError):
        BackupReader(folder, PASSPHRASE)
    write(folder)
    BackupReader(folder, PASSPHRASE).verify()


def test_a_backup_is_never_written_over(folder: Path, tmp_path: Path) -> None:
    before = (folder / MANIFEST).read_bytes()
    with pytest.raises(BackupError):
        BackupWriter(folder, PASSPHRASE)
    assert (folder / MANIFEST).read_bytes() == before
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("dear")
    with pytest.raises(BackupError):
        BackupWriter(tmp_path / "home", PASSPHRASE)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 2}'])
def test_what_is_no_manifest_is_refused(folder: Path, content: str) -> None:
    (folder / MANIFEST).write_text(content)
    with pytest.raises(BackupError):
        BackupReader(folder, PASSPHRASE)
