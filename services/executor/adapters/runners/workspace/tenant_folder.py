"""Opens the folder of a tenant in a volume; creates it on first use. Blocking: run it in a thread."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from services.executor.domain.volumes import Volume

_NOT_FOR_OTHERS = 0o770


def open_tenant_folder(volume: Volume, tenant: str) -> Path:
    """Return the folder that runs of a tenant see.

    A new one has the owner and mode of the volume without access for others. Raises OSError, also if the path is a
    link.
    """
    folder = volume.folder_of(tenant)
    if volume.shared:
        return folder
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        _inherit(volume.folder.stat(), folder)
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise NotADirectoryError(folder)
    return folder


def _inherit(volume: os.stat_result, folder: Path) -> None:
    if os.geteuid() == 0:
        os.chown(folder, volume.st_uid, volume.st_gid)
    folder.chmod(0o700 | volume.st_mode & _NOT_FOR_OTHERS)
