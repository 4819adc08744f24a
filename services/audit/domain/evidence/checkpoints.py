"""Signs checkpoints, and only such that are consistent with the earlier ones."""

from __future__ import annotations

from libs.common.runtime.clock import Clock
from services.audit.domain.evidence.cosignature import Witnesses
from services.audit.domain.evidence.errors import checkpoint_not_found, history_changed
from services.audit.domain.evidence.model import Shard
from services.audit.domain.evidence.ports import CheckpointStore, ShardStore, TreeStore
from services.audit.domain.evidence.prove import root_at
from services.audit.domain.merkle.note import CheckpointKey, Origin, checkpoint_text, key_id, signed_note, verifier_key
from services.audit.domain.model import SignedCheckpoint
from services.audit.domain.ports import LogReader


class CheckpointSigner:
    """Signs the state of a shard. Before signing, the roots of the last checkpoint and of the new one are recomputed
    from the stored hashes, so all checkpoints of a shard are consistent."""

    def __init__(
        self,
        log: LogReader,
        shards: ShardStore,
        trees: TreeStore,
        store: CheckpointStore,
        key: CheckpointKey,
        clock: Clock,
        origin: Origin,
    ) -> None:
        self._log, self._shards, self._trees, self._store = log, shards, trees, store
        self._key, self._clock, self._origin = key, clock, origin

    async def current(self) -> SignedCheckpoint:
        """Return a checkpoint of the open shard over everything committed by any replica before this call."""
        return await self.for_shard((await self._log.head()).shard)

    async def for_shard(self, number: int) -> SignedCheckpoint:
        """Return a checkpoint over a whole shard: the stored one of that size, or a new one, which is stored."""
        shard = await self._shards.get(number)
        if shard is None:
            raise checkpoint_not_found()
        return await self._store.find(number, shard.size) or await self._sign(shard)

    async def add_cosignature(self, witnesses: Witnesses, shard: int, size: int, line: str) -> SignedCheckpoint:
        """Add the signature line of a known witness to a stored checkpoint, and return the checkpoint with all
        lines."""
        checkpoint = await self._store.find(shard, size)
        if checkpoint is None:
            raise checkpoint_not_found()
        key = witnesses.verify(checkpoint.note, line)
        await self._store.add_cosignature(checkpoint, key.key_id, line.removesuffix("\n"))
        return await self._store.find(shard, size) or checkpoint

    async def verifier_key(self) -> str:
        """Return the verifier key of the log, which opens the checkpoints of every shard."""
        head = await self._log.head()
        return verifier_key(self._origin.of_log(head.log_id), self._key.public_key)

    async def _sign(self, shard: Shard) -> SignedCheckpoint:
        await self._raise_if_forked(shard)
        origin = self._origin.of_shard(shard.log_id, shard.number)
        names = (origin, self._origin.of_log(shard.log_id))
        note = signed_note(checkpoint_text(origin, shard.size, shard.root), names, self._key)
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

    async def _raise_if_forked(self, shard: Shard) -> None:
        earlier = await self._store.page(shard.number, range(shard.size), 1, ascending=False)
        for size, root in [*((last.size, last.root) for last in earlier), (shard.size, shard.root)]:
            if await root_at(self._trees, shard, size) != root:
                raise history_changed(shard.number, size)
