"""The interfaces that adapters implement for checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from services.executor.domain.checkpoints.checkpoint import Checkpoint


class AddOutcome(StrEnum):
    """What became of a checkpoint."""

    STORED = "stored"
    NOT_HELD = "not_held"
    """Another attempt has the job by now."""
    NO_PARENT = "no_parent"
    """The checkpoint that it is a difference to is gone."""
    FULL = "full"
    """The tenant or the job has too many."""


class CheckpointStore(Protocol):
    """Stores checkpoints of some kinds, encrypted.

    Every method raises STATE_SERVER_UNAVAILABLE or SERVICE_UNAVAILABLE when the store does not answer.
    """

    async def add(self, tenant: str, checkpoint: Checkpoint, content: bytes) -> AddOutcome:
        """Store a checkpoint, if its attempt has the job."""
        ...

    async def find(self, invocation_id: str) -> Sequence[Checkpoint]:
        """Return the checkpoints of a job, newest first."""
        ...

    async def content(self, invocation_id: str, number: int) -> bytes | None:
        """Return what was stored; None if it is gone or cannot be decrypted."""
        ...

    async def delete(self, invocation_id: str, number: int) -> None:
        """Delete a checkpoint, and those that are differences to it. Idempotent."""
        ...


class JobProgress(Protocol):
    """Knows which attempt has a job."""

    async def note_progress(self, invocation_id: str, attempt: int) -> bool:
        """Note that an attempt got further; return False if another one has the job."""
        ...
