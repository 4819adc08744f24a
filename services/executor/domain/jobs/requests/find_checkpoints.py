"""Lists and deletes the checkpoints of a caller's invocations."""

from __future__ import annotations

from collections.abc import Sequence

from services.executor.domain.checkpoints.checkpoint import Checkpoint
from services.executor.domain.checkpoints.stored_checkpoints import StoredCheckpoints
from services.executor.domain.jobs.job import JobOwner
from services.executor.domain.jobs.requests.find_invocations import FindInvocations


class FindCheckpoints:
    """Shows callers the checkpoints of their own invocations, never the states."""

    def __init__(self, jobs: FindInvocations, stored: StoredCheckpoints) -> None:
        self._jobs, self._stored = jobs, stored

    async def page(self, owner: JobOwner, invocation_id: str) -> Sequence[Checkpoint]:
        """Return the checkpoints of an invocation, newest first. Raises INVOCATION_NOT_FOUND."""
        await self._jobs.get(owner, invocation_id)
        found, _ = await self._stored.find(invocation_id)
        return found

    async def delete(self, owner: JobOwner, invocation_id: str, number: int) -> None:
        """Delete a checkpoint and the differences to it. Raises INVOCATION_NOT_FOUND, STATE_SERVER_UNAVAILABLE."""
        await self._jobs.get(owner, invocation_id)
        for store in (self._stored.micro, self._stored.durable):
            await store.delete(invocation_id, number)
