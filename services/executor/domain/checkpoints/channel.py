"""The channel of a run that saves checkpoints."""

from __future__ import annotations

import asyncio

from services.executor.domain.checkpoints import errors
from services.executor.domain.checkpoints.run_checkpoints import RunCheckpoints
from services.executor.domain.run_channel import CheckpointState, InputQuestion, ProgressReport


class CheckpointChannel:
    """Stores what a tool saves. Its other reports have no readers."""

    def __init__(self, checkpoints: RunCheckpoints) -> None:
        self._checkpoints = checkpoints
        self.canceled: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def resume_state(self) -> bytes | None:
        """The state of the checkpoint to start from; None for a start from the beginning."""
        return self._checkpoints.resume_state

    def progress(self, report: ProgressReport) -> None:
        """Ignore progress."""

    def log(self, severity: str, text: str) -> None:
        """Ignore a line."""

    def partial_result(self, content: bytes) -> None:
        """Ignore a part of the result."""

    async def ask(self, question: InputQuestion) -> bytes:
        """Refuse a question."""
        raise errors.not_resumable("no caller is connected")

    async def save(self, checkpoint: CheckpointState) -> None:
        """Store a checkpoint, or leave it out where the last one is too recent."""
        await self._checkpoints.save(checkpoint)
