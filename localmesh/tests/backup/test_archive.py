"""A backup file is complete or refused."""

from __future__ import annotations

import io
import stat
import tarfile
from pathlib import Path

import pytest

from localmesh.backup.archive import ArchiveError, extract_archive, write_archive


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    secrets, volumes = tmp_path / "secrets", tmp_path / "volumes"
    (secrets / "signing-keys").mkdir(parents=True)
    (secrets / "signing-keys" / "1.pem").write_text("key")
    (volumes / "reports").mkdir(parents=True)
    (volumes / "reports" / "run.sh").write_text("#!/bin/sh")
    (volumes / "reports" / "run.sh").chmod(0o755)
    (volumes / "reports" / "way-out").symlink_to("/etc/passwd")
    (tmp_path / "dump").write_bytes(bytes(5000))
    write_archive(tmp_path / "mesh.tar.gz", tmp_path / "dump", secrets, volumes)
    return tmp_path / "mesh.tar.gz"


def test_what_was_written_comes_back_with_its_modes_and_without_links(archive: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    back = tmp_path / "back"
    manifest = extract_archive(archive, back)
    files = {str(path.relative_to(back)) for path in back.rglob("*") if path.is_file()}
    assert (
        files == manifest["files"].keys() == {"database.dump", "secrets/signing-keys/1.pem", "volumes/reports/run.sh"}
    )
    assert (back / "secrets" / "signing-keys" / "1.pem").read_text() == "key"
    assert (back / "volumes" / "reports" / "run.sh").stat().st_mode & 0o100
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def rewritten(archive: Path, **changes: bytes | None) -> Path:
    """The same archive with other contents of these members, or without them."""
    target = archive.with_name("rewritten.tar.gz")
    with tarfile.open(archive) as old, tarfile.open(target, "w:gz") as new:
        contents = {member.name: old.extractfile(member).read() for member in old}  # type: ignore[union-attr]
        for name, content in (contents | changes).items():
            if content is not None:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                new.addfile(entry, io.BytesIO(content))
    return target


@pytest.mark.parametrize(
    "changes",
    [
        {"database.dump": b"other"},
        {"database.dump": None},
        {"manifest.json": None},
        {"manifest.json": b"[]"},
        {"secrets/more": b"x"},
        {"../outside": b"x"},
        {"secrets/../../outside": b"x"},
        {"/outside": b"x"},
    ],
)
def test_an_archive_that_was_changed_is_refused(
    archive: Path, tmp_path: Path, changes: dict[str, bytes | None]
) -> None:
    with pytest.raises(ArchiveError):
        extract_archive(rewritten(archive, **changes), tmp_path / "back")
    assert not list(tmp_path.parent.rglob("outside"))
