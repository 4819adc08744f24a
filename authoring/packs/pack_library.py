"""Installs the third-party packages of a pack on the author's side, once per content, to import the pack's code."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from services.executor.adapters.runners.packs.choose_wheels import choose_wheels
from services.executor.adapters.runners.packs.libraries import content_of
from services.executor.adapters.runners.packs.package_lock import FOLDER, LOCK, read_lock
from services.executor.adapters.runners.packs.unpack_wheels import unpack_wheels


def library_of(pack: Path) -> Path | None:
    """Return the folder of a pack's installed packages; None if it locks none. Raises WheelError or OSError."""
    lock = pack / LOCK
    if not lock.is_file():
        return None
    digests = {path.name: _digest_of(path) for path in sorted((pack / FOLDER).glob("*.whl"))}
    wheels = choose_wheels(read_lock(lock.read_text(encoding="utf-8", errors="replace")), digests)
    if not wheels:
        return None
    libraries = _cache()
    libraries.mkdir(parents=True, exist_ok=True)
    library = libraries / content_of(pack, wheels)
    if not library.is_dir():
        staged = Path(tempfile.mkdtemp(dir=libraries))
        try:
            unpack_wheels((pack / FOLDER / name for name in wheels), staged / "library")
            # Another command may have been first; its content is the same.
            if not library.is_dir():
                (staged / "library").rename(library)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    return library


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "toolmesh" / "libraries"


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
