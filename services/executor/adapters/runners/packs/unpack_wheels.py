"""Unpacks the wheels of a pack. Nothing of them runs before it is inside a sandbox."""

from __future__ import annotations

import shutil
import stat
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from services.executor.adapters.runners.packs.package_lock import WheelError

MAX_BYTES = 1 << 30
MAX_FILES = 50_000
# The parts of a wheel's data folder that are importable.
_LIBRARIES = ("purelib", "platlib")


def unpack_wheels(wheels: Iterable[Path], target: Path) -> None:
    """Unpack wheels into a folder that is readable for every user. Raises WheelError for one that is none."""
    target.mkdir(mode=0o755, parents=True)
    room = [MAX_BYTES, MAX_FILES]
    for wheel in wheels:
        try:
            with zipfile.ZipFile(wheel) as archive:
                for member in archive.infolist():
                    if (place := _place(member)) is not None:
                        _unpack(archive, member, target / place, room)
        except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
            raise WheelError(f"{wheel.name} is no wheel: {error}") from None
    for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
        folder.chmod(0o755)


def _place(member: zipfile.ZipInfo) -> PurePosixPath | None:
    """Return where a member belongs; None for what is not importable. Raises WheelError for a path that leads out."""
    path = PurePosixPath(member.filename)
    if path.is_absolute() or ".." in path.parts or "\\" in member.filename or stat.S_ISLNK(member.external_attr >> 16):
        raise WheelError(f"a wheel has the member {member.filename[:80]!r}, which leads out of it")
    if member.is_dir() or not path.parts:
        return None
    if not path.parts[0].endswith(".data"):
        return path
    kept = len(path.parts) > 2 and path.parts[1] in _LIBRARIES
    return PurePosixPath(*path.parts[2:]) if kept else None


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, place: Path, room: list[int]) -> None:
    room[0] -= member.file_size
    room[1] -= 1
    if min(room) < 0:
        raise WheelError(f"its packages have more than {MAX_BYTES >> 20} MiB or {MAX_FILES} files")
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        # The archive reader stops at the size that was counted, and compares the checksum.
        with archive.open(member) as source, place.open("xb") as copy:
            shutil.copyfileobj(source, copy)
    except OSError as error:
        raise WheelError(f"{member.filename[:80]} cannot be unpacked: {error.strerror}") from None
    place.chmod(0o644)
