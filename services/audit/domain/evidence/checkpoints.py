"""Signing what the log holds, and never two things that do not fit together."""

from __future__ import annotations

from libs.common.runtime.clock import Clock
from services.audit.domain.evidence.cosignature import Witnesses
from services.audit.domain.evidence.errors import checkpoint_not_found, history_changed
from services.audit.domain.evidence.model import Shard
from services.audit.domain.evidence.ports import CheckpointStore, Shards, Trees
from services.audit.domain.evidence.prove import root_at
from services.audit.domain.merkle.note import Origin, checkpoint_text, key_id, signed_note, verifier_key
from services.audit.domain.model import SignedCheckpoint
from services.audit.domain.ports import CheckpointKey, LogReader


class Checkpoints:
    """Speaks for the log. Before it signs, it makes sure that what is stored still has the roots of what it signed last and
    of what it is about to sign, so that every checkpoint of a shard is consistent with the next."""

    def __init__(
        self,
        log: LogReader,
        shards: Shards,
        trees: Trees,
        store: CheckpointStore,
        key: CheckpointKey,
        clock: Clock,
        origin: Origin,
    ) -> None:
        self._log, self._shards, self._trees, self._store = log, shards, trees, store
        self._key, self._clock, self._origin = key, clock, origin

    async def current(self) -> SignedCheckpoint:
        """Return a checkpoint over everything that was durable when this was called, by whichever replica."""
        return await self.of((await self._log.head()).shard)

    async def of(self, number: int) -> SignedCheckpoint:
        """Return a checkpoint over all of a shard. It is stored; a stored one of the same size is returned as it is."""
        shard = await self._shards.shard(number)
        if shard is None:
            raise checkpoint_not_found()
        return await self._store.find(number, shard.size) or await self._sign(shard)

    async def add_cosignature(self, witnesses: Witnesses, shard: int, size: int, line: str) -> SignedCheckpoint:
        """Add the line of a known witness to a stored checkpoint and return it with all its lines."""
        found = await self._store.find(shard, size)
        if found is None:
            raise checkpoint_not_found()
        key = witnesses.verify(found.note, line)
        await self._store.add_cosignature(found, key.key_id, line.removesuffix("\n"))
        return await self._store.find(shard, size) or found

    async def verifier_key(self) -> str:
        """Return the public key, for the open shard, in the form that a verifier of the notes takes."""
        head = await self._log.head()
        return verifier_key(self._origin(head.log_id, head.shard), self._key.public_key)

    async def _sign(self, shard: Shard) -> SignedCheckpoint:
        await self._refuse_to_fork(shard)
        origin = self._origin(shard.log_id, shard.number)
        note = signed_note(checkpoint_text(origin, shard.size, shard.root), origin, self._key)
        return await self._store.add(
            SignedCheckpoint(
                shard.log_id,
                shard.number,
                shard.first_sequence,
                shard.size,
                shard.root,
                note,
                key_id(origin, self._key.public_key),
                self._clock.now(),
            )
        )

    async def _refuse_to_fork(self, shard: Shard) -> None:
        earlier = await self._store.page(shard.number, range(shard.size), 1, ascending=False)
        for size, root in [*((last.size, last.root) for last in earlier), (shard.size, shard.root)]:
            if await root_at(self._trees, shard, size) != root:
                raise history_changed(shard.number, size)
