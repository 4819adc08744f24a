"""Copies tool packs: folders of code that a deployment provides.

The copy is what runs, so the digest in the audit record is the digest of the files that ran.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libs.common.entry_points import PACK_NAME, PROGRAM_PATH
from libs.common.errors import MeshError
from libs.common.json.canonical import digest
from libs.common.json.jsonio import parse_object
from services.executor.adapters.runners.packs.choose_wheels import choose_wheels
from services.executor.adapters.runners.packs.libraries import Library
from services.executor.adapters.runners.packs.package_lock import FOLDER as WHEELS
from services.executor.adapters.runners.packs.package_lock import LOCK, WheelError, read_lock

DESCRIPTION = "pack.json"
MAX_FILES = 20_000
MAX_BYTES = 256 << 20
SKIPPED = frozenset({"__pycache__", ".git"})
_KEYS = {"name", "description", "programs", "lib"}
_CHUNK = 1 << 20


class PackError(Exception):
    """The pack is invalid; the message names the defect."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Pack:
    """One pack as it was copied. A changed pack is another one."""

    name: str
    digest: str
    folder: Path
    """The copied files."""
    files: frozenset[str]
    programs: frozenset[str]
    lib: str = ""
    """The pack's folder of modules that it imports by their own names, relative to the pack; empty for none."""
    wheels: tuple[str, ...] = ()
    """The wheels of its third-party packages for this interpreter, by file name."""
    library: Library | None = None
    """Where they are installed, once they are."""

    @property
    def label(self) -> str:
        """The pack's name in audit records."""
        return f"{self.name}@{self.digest}"

    def has_module(self, module: str) -> bool:
        """Return whether the pack contains the source of a module."""
        path = module.replace(".", "/")
        return f"{path}.py" in self.files or f"{path}/__init__.py" in self.files


def copy_pack(source: Path, target: Path) -> Pack:
    """Copy one pack and return it. Raises PackError if it is invalid or links outside itself."""
    root = source.resolve(strict=True)
    contents: list[list[Any]] = []
    total = 0
    target.mkdir(parents=True)
    for relative, path in _files(root, root):
        if len(contents) >= MAX_FILES:
            raise PackError(f"it has more than {MAX_FILES} files")
        size, file_digest = _copy_file(path, target / relative, MAX_BYTES - total)
        total += size
        contents.append([relative, os.access(target / relative, os.X_OK), file_digest])
    contents.sort()
    for folder, _, _ in os.walk(target):
        # Independent of the umask: the sandbox's user must be able to read it.
        Path(folder).chmod(0o755)
    return _describe_pack(target, digest(contents), {relative: file_digest for relative, _, file_digest in contents})


def _describe_pack(folder: Path, content_digest: str, digests: Mapping[str, str]) -> Pack:
    files = frozenset(digests)
    try:
        description = parse_object((folder / DESCRIPTION).read_bytes(), max_bytes=64 * 1024)
    except MeshError as error:
        raise PackError(f"{DESCRIPTION}: {error.message}") from None
    if unknown := description.keys() - _KEYS:
        raise PackError(f"{DESCRIPTION}: unknown field {sorted(unknown)[0]}")
    name, programs, lib = description.get("name"), description.get("programs", []), description.get("lib", "")
    if not isinstance(name, str) or not PACK_NAME.fullmatch(name):
        raise PackError("its name is not lower case letters, digits and underscores")
    if name in sys.stdlib_module_names or name == "toolmesh_tool":
        raise PackError("its name is that of a module of Python or of the mesh")
    if not isinstance(programs, list) or any(not _is_program(program, files) for program in programs):
        raise PackError("a program that it offers is not one of its files")
    if not isinstance(lib, str) or (lib and not PROGRAM_PATH.fullmatch(lib)):
        raise PackError("its lib is not a folder of its own")
    return Pack(name, content_digest, folder, files, frozenset(programs), lib, _wheels(folder, digests))


def _wheels(folder: Path, digests: Mapping[str, str]) -> tuple[str, ...]:
    """Return the wheels that the lock of a pack names; none without a lock."""
    if LOCK not in digests:
        return ()
    brought = {path.rpartition("/")[2]: each for path, each in digests.items() if path.startswith(f"{WHEELS}/")}
    try:
        return choose_wheels(read_lock((folder / LOCK).read_text(encoding="utf-8", errors="replace")), brought)
    except WheelError as error:
        raise PackError(str(error)) from None


def _is_program(program: Any, files: frozenset[str]) -> bool:
    return isinstance(program, str) and bool(PROGRAM_PATH.fullmatch(program)) and program in files


def _files(folder: Path, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield every file below a folder with its path in the pack. Links may only point to files of the same pack."""
    for entry in sorted(os.scandir(folder), key=lambda item: item.name):
        path = Path(entry.path)
        if entry.name in SKIPPED:
            continue
        if entry.is_symlink():
            real = path.resolve()
            if not real.is_relative_to(root) or not real.is_file():
                raise PackError(f"a link leads out of it: {entry.name}")
            yield str(path.relative_to(root)), real
        elif entry.is_dir():
            yield from _files(path, root)
        elif entry.is_file():
            yield str(path.relative_to(root)), path
        else:
            raise PackError(f"it contains something other than files and folders: {entry.name}")


def _copy_file(path: Path, target: Path, max_bytes: int) -> tuple[int, str]:
    """Copy a file, world-readable and writable by its owner only. Returns its size and digest."""
    target.parent.mkdir(parents=True, exist_ok=True)
    hashed, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as source, target.open("xb") as copy:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PackError("it contains something other than files and folders")
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            if size > max_bytes:
                raise PackError(f"it has more than {MAX_BYTES >> 20} MiB")
            hashed.update(chunk)
            copy.write(chunk)
    target.chmod(0o755 if status.st_mode & stat.S_IXUSR else 0o644)
    return size, hashed.hexdigest()
