"""Puts a pack into a folder that an executor watches, as a whole: it sees the former version or the new one."""

from __future__ import annotations

import shutil
from pathlib import Path

from libs.common.ids import new_id
from services.executor.adapters.runners.packs.packs import Pack, copy_pack

VERSIONS = ".versions"


def install_pack(source: Path, packs: Path) -> Pack:
    """Copy a pack and make the link of its name lead to the copy. Raises PackError or OSError; then nothing changed."""
    versions = packs / VERSIONS
    versions.mkdir(parents=True, exist_ok=True)
    staged = versions / new_id()
    try:
        pack = copy_pack(source, staged)
        copy = versions / f"{pack.name}-{pack.digest.rpartition(':')[2]}"
        if copy.is_dir():
            shutil.rmtree(staged)
        else:
            staged.rename(copy)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    _lead(packs / pack.name, copy, versions / f"{new_id()}.link")
    _remove_former(versions, pack.name, copy)
    return pack


def _lead(link: Path, copy: Path, temporary: Path) -> None:
    temporary.symlink_to(Path(VERSIONS) / copy.name)
    # Renamed, so that there is a pack of this name at every moment.
    temporary.replace(link)


def _remove_former(versions: Path, name: str, current: Path) -> None:
    for former in versions.glob(f"{name}-*"):
        if former != current and len(former.name) == len(current.name):
            shutil.rmtree(former, ignore_errors=True)
