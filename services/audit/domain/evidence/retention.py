"""The verbs that change the log. Each is recorded in the log with the change itself, and may be asked for again."""

from __future__ import annotations

from services.audit.domain.errors import record_not_found
from services.audit.domain.evidence.errors import range_empty, refused
from services.audit.domain.evidence.issue_checkpoints import IssueCheckpoints
from services.audit.domain.evidence.model import Archival, Erasure, LegalHold, Requester, Shard
from services.audit.domain.evidence.ports import LogKeeper, Scribe, Shards
from services.audit.domain.log.tail import Tail
from services.audit.domain.ports import LogReader


class Keep:
    """Closes and archives shards, places and releases holds, erases payloads. What the log's rules forbid, the database
    refuses; what is done already is answered as it is."""

    def __init__(
        self,
        log: LogReader,
        shards: Shards,
        keeper: LogKeeper,
        scribe: Scribe,
        tail: Tail,
        issue: IssueCheckpoints,
        *,
        retention_years: int,
    ) -> None:
        self._log, self._shards, self._keeper, self._scribe = log, shards, keeper, scribe
        self._tail, self._issue, self._years = tail, issue, retention_years

    async def close_shard(self, number: int) -> Shard:
        """Close the open shard, which must have this number; one that is closed already is returned as it is."""
        shard = await self._shard(number)
        if shard.close_time is None:
            try:
                self._recorded(await self._keeper.close_shard(number))
            finally:
                # Another replica may have closed it at the same moment; either way its last checkpoint is due.
                await self._issue.turn()
        return await self._shard(number)

    async def archive_shard(self, number: int, manifest_digest: str, by: Requester, *, drop: bool) -> Shard:
        """Note a closed shard's archive and, with `drop`, drop its records if the retention is over and nothing holds them."""
        shard = await self._shard(number)
        if shard.manifest_digest not in ("", manifest_digest):
            raise refused("archive_differs")
        if drop:
            await self._drop(shard, manifest_digest, by)
        elif shard.archive_time is None:
            entry = self._scribe.shard_archived(Archival(number, manifest_digest, records_dropped=False), by)
            self._recorded(await self._keeper.archive_shard(entry))
        return await self._shard(number)

    async def _drop(self, shard: Shard, manifest_digest: str, by: Requester) -> None:
        if shard.drop_time is None:
            entry = self._scribe.shard_archived(Archival(shard.number, manifest_digest, records_dropped=True), by)
            self._recorded(await self._keeper.drop_shard(entry, years=self._years))

    async def place_hold(self, hold: LegalHold, by: Requester) -> LegalHold:
        """Place a hold; the same one again is returned as it stands. One that was released stands no more, and its id is not
        given out twice: the log would tell two holds as one."""
        if hold.end_sequence is not None and hold.end_sequence <= hold.first_sequence:
            raise range_empty()
        standing = await self._shards.hold(hold.hold_id)
        if standing is None:
            self._recorded(await self._keeper.place_hold(self._scribe.hold_placed(hold, by)))
            standing = await self._hold(hold.hold_id)
        same = (standing.first_sequence, standing.end_sequence) == (hold.first_sequence, hold.end_sequence)
        if not same or standing.release_time is not None:
            raise refused("hold_exists")
        return standing

    async def release_hold(self, hold_id: str, reason: str, by: Requester) -> LegalHold:
        """Release a hold; one that is released already is returned as it is."""
        standing = await self._hold(hold_id)
        if standing.release_time is None:
            released = LegalHold(hold_id, standing.first_sequence, standing.end_sequence, reason)
            self._recorded(await self._keeper.release_hold(self._scribe.hold_released(released, by)))
        return await self._hold(hold_id)

    async def erase_payload(self, sequence: int, reason: str, by: Requester) -> int:
        """Erase the payload of one record; return the sequence of the record that says so."""
        head = await self._log.head()
        found = await self._log.by_sequence(head.log_id, sequence)
        if found is None:
            raise record_not_found(str(sequence))
        if found.erased_by is not None:
            return found.erased_by
        entry = self._scribe.payload_erased(Erasure(sequence, found.leaf_hash, reason), by)
        return self._recorded(await self._keeper.erase_payload(entry))

    def _recorded(self, sequence: int) -> int:
        self._tail.reached(sequence + 1)
        return sequence

    async def _shard(self, number: int) -> Shard:
        shard = await self._shards.shard(number)
        if shard is None:
            raise refused("shard_unknown")
        return shard

    async def _hold(self, hold_id: str) -> LegalHold:
        hold = await self._shards.hold(hold_id)
        if hold is None:
            raise refused("hold_unknown")
        return hold
