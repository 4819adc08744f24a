"""Tool packs: folders of code that a deployment gives its executors.

A pack is copied when the executor starts, and what runs is the copy: its digest, which the evidence names, is the digest of the very
files that ran. A pack that is not as it should be is left out, with a line in the log, and its tools cannot run here.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libs.common.errors import MeshError
from libs.common.json.canonical import digest
from libs.common.json.jsonio import parse_object
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.packs.entry_points import PACK_NAME, PROGRAM_PATH

DESCRIPTION = "pack.json"
MAX_FILES = 20_000
MAX_BYTES = 256 << 20
_SKIPPED = {"__pycache__", ".git"}
_KEYS = {"name", "description", "programs", "lib"}
_CHUNK = 1 << 20


class PackError(Exception):
    """Says what is wrong with a pack."""


@dataclass(frozen=True, slots=True)
class Pack:
    """One pack, as it was when the executor started."""

    name: str
    digest: str
    folder: Path
    """The copy that runs."""
    files: frozenset[str]
    programs: frozenset[str]
    lib: str = ""
    """A folder of third-party packages that comes with it, relative to the pack; empty for none."""

    @property
    def label(self) -> str:
        """How evidence names it."""
        return f"{self.name}@{self.digest}"

    def has_module(self, module: str) -> bool:
        """Return whether it holds the source of a module."""
        path = module.replace(".", "/")
        return f"{path}.py" in self.files or f"{path}/__init__.py" in self.files


def load_packs(folders: Sequence[Path], copies: Path, log: Log) -> Mapping[str, Pack]:
    """Copy every pack of these folders below `copies` and return them by name. Of two with one name neither runs."""
    found: dict[str, Pack] = {}
    twice: set[str] = set()
    sources = [each for folder in folders for each in sorted(folder.iterdir()) if (each / DESCRIPTION).is_file()]
    for nth, source in enumerate(sources):
        try:
            pack = copied(source, copies / str(nth))
        except (PackError, OSError) as error:
            log.error("a tool pack cannot be used", pack=source.name, why=str(error))
            continue
        if pack.name in found:
            log.error("two tool packs have one name, so neither is used", pack=pack.name)
            twice.add(pack.name)
        found[pack.name] = pack
    return {name: pack for name, pack in found.items() if name not in twice}


def copied(source: Path, target: Path) -> Pack:
    """Copy one pack and return it. Raises PackError when it is not as a pack should be, or reaches outside itself."""
    root = source.resolve(strict=True)
    listed: list[list[Any]] = []
    total = 0
    target.mkdir(parents=True)
    for relative, path in _files(root, root):
        if len(listed) >= MAX_FILES:
            raise PackError(f"it has more than {MAX_FILES} files")
        size, content = _copy(path, target / relative, MAX_BYTES - total)
        total += size
        listed.append([relative, os.access(target / relative, os.X_OK), content])
    listed.sort()
    for folder, _, _ in os.walk(target):
        # Whatever this process masks: the sandbox's user must be able to read it.
        Path(folder).chmod(0o755)
    return _pack(target, digest(listed), frozenset(entry[0] for entry in listed))


def _pack(folder: Path, content: str, files: frozenset[str]) -> Pack:
    try:
        described = parse_object((folder / DESCRIPTION).read_bytes(), max_bytes=64 * 1024)
    except MeshError as error:
        raise PackError(f"{DESCRIPTION}: {error.message}") from None
    if unknown := described.keys() - _KEYS:
        raise PackError(f"{DESCRIPTION}: unknown field {sorted(unknown)[0]}")
    name, programs, lib = described.get("name"), described.get("programs", []), described.get("lib", "")
    if not isinstance(name, str) or not PACK_NAME.fullmatch(name):
        raise PackError("its name is not lower case letters, digits and underscores")
    if name in sys.stdlib_module_names or name == "toolmesh_tool":
        raise PackError("its name is that of a module of Python or of the mesh")
    if not isinstance(programs, list) or any(not _is_program(program, files) for program in programs):
        raise PackError("a program that it offers is not one of its files")
    if not isinstance(lib, str) or (lib and not PROGRAM_PATH.fullmatch(lib)):
        raise PackError("its lib is not a folder of its own")
    return Pack(name, content, folder, files, frozenset(programs), lib)


def _is_program(program: Any, files: frozenset[str]) -> bool:
    return isinstance(program, str) and bool(PROGRAM_PATH.fullmatch(program)) and program in files


def _files(folder: Path, root: Path) -> Iterator[tuple[str, Path]]:
    """Every file below a folder, with its place in the pack. A link is followed to a file of the same pack, and nowhere else."""
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        path = Path(entry.path)
        if entry.name in _SKIPPED:
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
            raise PackError(f"it holds something that is no file: {entry.name}")


def _copy(path: Path, target: Path, room: int) -> tuple[int, str]:
    """Copy a file, readable for everybody and writable for nobody else. Returns its size and digest."""
    target.parent.mkdir(parents=True, exist_ok=True)
    hashed, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as source, target.open("xb") as copy:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PackError("it holds something that is no file")
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            if size > room:
                raise PackError(f"it has more than {MAX_BYTES >> 20} MiB")
            hashed.update(chunk)
            copy.write(chunk)
    target.chmod(0o755 if status.st_mode & stat.S_IXUSR else 0o644)
    return size, hashed.hexdigest()
