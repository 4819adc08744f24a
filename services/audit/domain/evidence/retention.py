"""Retention: closing and archiving shards, legal holds and erasure. Each change is recorded in the log and
idempotent."""

from __future__ import annotations

from services.audit.domain.errors import record_not_found
from services.audit.domain.evidence.errors import condition_error, range_empty
from services.audit.domain.evidence.issue_checkpoints import CheckpointIssuer
from services.audit.domain.evidence.model import Archival, Erasure, LegalHold, Requester, Shard
from services.audit.domain.evidence.ports import RetentionWriter, SelfRecorder, ShardStore
from services.audit.domain.log.tail import Tail
from services.audit.domain.ports import LogReader


class Retention:
    """Closes and archives shards, places and releases holds, erases payloads. The database enforces the rules; a
    repeated change returns the current state."""

    def __init__(
        self,
        log: LogReader,
        shards: ShardStore,
        writer: RetentionWriter,
        recorder: SelfRecorder,
        tail: Tail,
        issuer: CheckpointIssuer,
        *,
        retention_years: int,
    ) -> None:
        self._log, self._shards, self._writer, self._recorder = log, shards, writer, recorder
        self._tail, self._issuer, self._years = tail, issuer, retention_years

    async def close_shard(self, number: int) -> Shard:
        """Close the open shard, which must have this number. A closed shard is returned as it is."""
        shard = await self._shard(number)
        if shard.close_time is None:
            try:
                self._advance_tail(await self._writer.close_shard(number))
            finally:
                # Another replica may have closed it concurrently; either way its last checkpoint is due.
                await self._issuer.run_once()
        return await self._shard(number)

    async def archive_shard(self, number: int, manifest_digest: str, by: Requester, *, drop: bool) -> Shard:
        """Register the archive of a closed shard. With `drop`, drop its records if the retention period is over and no
        hold covers them."""
        shard = await self._shard(number)
        if shard.manifest_digest not in ("", manifest_digest):
            raise condition_error("archive_differs")
        if drop:
            await self._drop(shard, manifest_digest, by)
        elif shard.archive_time is None:
            entry = self._recorder.record_shard_archived(Archival(number, manifest_digest, records_dropped=False), by)
            self._advance_tail(await self._writer.archive_shard(entry))
        return await self._shard(number)

    async def _drop(self, shard: Shard, manifest_digest: str, by: Requester) -> None:
        if shard.drop_time is None:
            entry = self._recorder.record_shard_archived(
                Archival(shard.number, manifest_digest, records_dropped=True), by
            )
            self._advance_tail(await self._writer.drop_shard(entry, years=self._years))

    async def place_hold(self, hold: LegalHold, by: Requester) -> LegalHold:
        """Place a hold; the same active hold is returned as it is. The id of a released hold is not reused: the log
        could not tell the two holds apart."""
        if hold.end_sequence is not None and hold.end_sequence <= hold.first_sequence:
            raise range_empty()
        current = await self._shards.get_hold(hold.hold_id)
        if current is None:
            self._advance_tail(await self._writer.place_hold(self._recorder.record_hold_placed(hold, by)))
            current = await self._hold(hold.hold_id)
        same = (current.first_sequence, current.end_sequence) == (hold.first_sequence, hold.end_sequence)
        if not same or current.release_time is not None:
            raise condition_error("hold_exists")
        return current

    async def release_hold(self, hold_id: str, reason: str, by: Requester) -> LegalHold:
        """Release a hold. A released hold is returned as it is."""
        current = await self._hold(hold_id)
        if current.release_time is None:
            released = LegalHold(hold_id, current.first_sequence, current.end_sequence, reason)
            self._advance_tail(await self._writer.release_hold(self._recorder.record_hold_released(released, by)))
        return await self._hold(hold_id)

    async def erase_payload(self, sequence: int, reason: str, by: Requester) -> int:
        """Erase the payload of a record; return the sequence of the erasure record."""
        head = await self._log.head()
        record = await self._log.get_by_sequence(head.log_id, sequence)
        if record is None:
            raise record_not_found(str(sequence))
        if record.erased_by is not None:
            return record.erased_by
        entry = self._recorder.record_payload_erased(Erasure(sequence, record.leaf_hash, reason), by)
        return self._advance_tail(await self._writer.erase_payload(entry))

    def _advance_tail(self, sequence: int) -> int:
        self._tail.advance(sequence + 1)
        return sequence

    async def _shard(self, number: int) -> Shard:
        shard = await self._shards.get(number)
        if shard is None:
            raise condition_error("shard_unknown")
        return shard

    async def _hold(self, hold_id: str) -> LegalHold:
        hold = await self._shards.get_hold(hold_id)
        if hold is None:
            raise condition_error("hold_unknown")
        return hold
