"""Reads stored checkpoints: lists them, and restores the state of one or of the newest usable one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from libs.common.errors import MeshError, Reason
from services.executor.domain.checkpoints.checkpoint import Checkpoint, CheckpointKind, RestoredState
from services.executor.domain.checkpoints.encoding import (
    FULL_EVERY,
    CheckpointDamagedError,
    StoredForm,
    state_of,
    unpack,
)
from services.executor.domain.checkpoints.ports import CheckpointStore
from services.executor.domain.model import Caller
from services.executor.domain.scheduling.heavy_work import HeavyWork

T = TypeVar("T")
# Smaller states are handled on the event loop.
SMALL_BYTES = 16 * 1024
# How many macro and named checkpoints are tried before a run starts at the beginning.
_MAX_DURABLE_TRIES = 10
_AWAY = frozenset({Reason.STATE_SERVER_UNAVAILABLE, Reason.SERVICE_UNAVAILABLE})


class StoredCheckpoints:
    """The checkpoints of all jobs: micro ones in one store, macro and named ones in another."""

    def __init__(self, micro: CheckpointStore, durable: CheckpointStore, heavy_work: HeavyWork) -> None:
        self.micro, self.durable, self._heavy_work = micro, durable, heavy_work

    def store_of(self, kind: CheckpointKind) -> CheckpointStore:
        """Return the store of a kind."""
        return self.micro if kind is CheckpointKind.MICRO else self.durable

    async def find(self, invocation_id: str) -> tuple[list[Checkpoint], bool]:
        """Return the checkpoints of a job, newest first, and whether the store of micro ones answered.

        Raises where the other store does not answer.
        """
        found, available = list(await self.durable.find(invocation_id)), True
        try:
            found += await self.micro.find(invocation_id)
        except MeshError as error:
            if error.reason not in _AWAY:
                raise
            available = False
        return sorted(found, key=lambda each: (each.attempt, each.number), reverse=True), available

    async def restore(self, caller: Caller, invocation_id: str, tool_digest: str) -> RestoredState:
        """Return the state of the newest usable checkpoint: the newest, the one before it, then the last macros."""
        found, available = await self.find(invocation_id)
        last = max((each.number for each in found), default=0)
        durable = [each for each in found[2:] if each.kind is not CheckpointKind.MICRO]
        unusable: list[int] = []
        for checkpoint in [*found[:2], *durable[:_MAX_DURABLE_TRIES]]:
            try:
                state = await self.load(caller, checkpoint, tool_digest)
            except CheckpointDamagedError:
                unusable.append(checkpoint.number)
            else:
                return RestoredState(checkpoint, state, tuple(unusable), last, available)
        return RestoredState(None, None, tuple(unusable), last, available)

    async def load(self, caller: Caller, checkpoint: Checkpoint, tool_digest: str) -> bytes:
        """Return the state of a checkpoint of this version of the tool. Raises CheckpointDamagedError."""
        store, chain = self.store_of(checkpoint.kind), list[StoredForm]()
        number = checkpoint.number
        while number and len(chain) <= FULL_EVERY:
            stored = await store.content(checkpoint.invocation_id, number)
            if stored is None:
                raise CheckpointDamagedError
            form = unpack(stored)
            if (form.invocation_id, form.number, form.tool_digest) != (checkpoint.invocation_id, number, tool_digest):
                raise CheckpointDamagedError
            chain.append(form)
            number = form.parent
        return await self.offload(caller, checkpoint.state_bytes, lambda: _state_of_chain(chain))

    async def offload(self, caller: Caller, size: int, work: Callable[[], T]) -> T:
        """Return what the function returns. Large states are handled beside the event loop."""
        return work() if size <= SMALL_BYTES else await self._heavy_work.run(caller, work)


def _state_of_chain(chain: list[StoredForm]) -> bytes:
    state: bytes | None = None
    for form in reversed(chain):
        state = state_of(form, state)
    if state is None:
        raise CheckpointDamagedError
    return state
