"""Keeps checkpoints in a folder: on another machine's disk, in version control, or on write-once storage."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from services.audit.domain.evidence.ports import AnchorError
from services.audit.domain.model import SignedCheckpoint


class FolderAnchor:
    """Stores each checkpoint as `<log id>/<shard>/<size>.note`. Existing files are never replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, checkpoint: SignedCheckpoint) -> None:
        """Implement `Anchor.put`; returns when the file is on disk."""
        await asyncio.to_thread(self._put, checkpoint)

    def _put(self, checkpoint: SignedCheckpoint) -> None:
        path = self._folder / checkpoint.log_id / str(checkpoint.shard) / f"{checkpoint.size:019d}.note"
        note = checkpoint.note.encode()
        try:
            if not path.exists():
                _write(path, note)
            existing = path.read_bytes()
        except OSError as error:
            raise AnchorError(f"{path.name} cannot be written: {error.strerror}") from error
        # After a change of the key the signature may differ, but not the text.
        if existing.partition(b"\n\n")[0] != note.partition(b"\n\n")[0]:
            raise AnchorError(f"a different checkpoint exists as {path.name}: the log has forked")


def _write(path: Path, note: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written under a temporary name, so that readers find a complete file or none; linked, so that no file is replaced.
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with scratch.open("wb") as file:
        file.write(note)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(scratch, path)
    except FileExistsError:
        return
    finally:
        scratch.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
