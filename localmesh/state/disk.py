"""Checks the free disk space before a mesh starts: a database that meets a full disk stops, and so does every call."""

from __future__ import annotations

import shutil
from pathlib import Path

from localmesh.state.state import StateError

# A new cluster takes 100 MB; its write-ahead log up to 256 MB more; logs up to 40 MB for each part.
NEEDED_BYTES = 512 * 1024**2
COMFORTABLE_BYTES = 2 * 1024**3


def check_free_space(folder: Path, needed: int = NEEDED_BYTES, comfortable: int = COMFORTABLE_BYTES) -> str:
    """Returns a warning if space is short, else nothing. Raises StateError if there is too little to start."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise StateError(
            f"the disk of {folder} has {_size(free)} free and a mesh needs {_size(needed)} to start; "
            "free some space, or choose a folder on another disk with --state"
        )
    if free < comfortable:
        return f"the disk of {folder} has only {_size(free)} free; calls are refused once it is full"
    return ""


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
