"""The third-party packages of a pack: a lock with hashes, and wheels that the pack brings.

An executor never fetches code. It takes the wheel of each locked package that fits its interpreter, by hash, and
unpacks it; nothing of it runs before it is inside a sandbox.
"""

from __future__ import annotations

import re
import shutil
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

LOCK, FOLDER = "requirements.lock", "wheels"
MAX_BYTES = 1 << 30
MAX_FILES = 50_000
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!+_-]+)((?:\s+--hash=sha256:[0-9a-f]{64})+)")
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
# The parts of a wheel's data folder that are importable.
_LIBRARIES = ("purelib", "platlib")


class WheelError(Exception):
    """The packages of a pack cannot be installed; the message names the defect."""


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """A package at a version, and the digests that a file of it may have."""

    name: str
    version: str
    digests: frozenset[str]


def read_lock(text: str) -> tuple[LockedPackage, ...]:
    """Return the packages of a lock in the format of pip. Raises WheelError for a line without hashes."""
    packages = []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        pin = line.partition(" #")[0].strip()
        if not pin or pin.startswith("#"):
            continue
        match = _PIN.fullmatch(pin)
        if match is None:
            raise WheelError(f"{LOCK}: {pin[:80]} is not NAME==VERSION --hash=sha256:...")
        packages.append(LockedPackage(canonicalize_name(match[1]), match[2], frozenset(_HASH.findall(match[3]))))
    return tuple(packages)


def choose_wheels(packages: Iterable[LockedPackage], digests: Mapping[str, str]) -> tuple[str, ...]:
    """Return the file name of the wheel of each package that fits this interpreter best.

    `digests` has the SHA-256 of each file of the folder. Raises WheelError for a package without such a wheel.
    """
    ranks = {tag: rank for rank, tag in enumerate(sys_tags())}
    chosen = []
    for package in packages:
        wheels = ((tags & ranks.keys(), name) for name, tags in _wheels_of(package, digests))
        fitting = [(min(ranks[tag] for tag in tags), name) for tags, name in wheels if tags]
        if not fitting:
            raise WheelError(
                f"{FOLDER} has no wheel of {package.name}=={package.version} for this interpreter"
                f" with a hash of {LOCK}; run: toolmesh pack lock"
            )
        chosen.append(min(fitting)[1])
    return tuple(chosen)


def _wheels_of(package: LockedPackage, digests: Mapping[str, str]) -> Iterator[tuple[str, frozenset[Tag]]]:
    for name, digest in digests.items():
        if digest in package.digests and name.endswith(".whl"):
            try:
                distribution, _, _, tags = parse_wheel_filename(name)
            except InvalidWheelFilename:
                continue
            if distribution == package.name:
                yield name, tags


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
