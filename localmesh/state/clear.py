"""Deletes the content of a state folder."""

from __future__ import annotations

import contextlib
import shutil

from localmesh.parts.cluster import choose_folder
from localmesh.process.child import RunAs
from localmesh.state.state import State


def clear_state(state: State) -> None:
    """Deletes the databases, keys and logs, and the folder itself unless it is a symlink or a mount point."""
    shutil.rmtree(choose_folder(state.path, RunAs.NOBODY), ignore_errors=True)
    for entry in list(state.path.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    with contextlib.suppress(OSError):
        state.path.rmdir()
