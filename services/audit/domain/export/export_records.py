"""Exporting a part of the log with what proves it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from libs.common.errors import MeshError
from services.audit.domain.errors import record_not_found
from services.audit.domain.evidence.checkpoints import Checkpoints
from services.audit.domain.evidence.errors import refused
from services.audit.domain.evidence.model import Shard
from services.audit.domain.evidence.ports import CheckpointStore, Shards
from services.audit.domain.evidence.prove import Prove
from services.audit.domain.model import LAST_SEQUENCE, LoggedRecord, RecordFilter, SignedCheckpoint, Span
from services.audit.domain.ports import LogReader

PAGE_SIZE = 500
# So many checkpoints within an export, evenly spread, narrow a change down well enough for whoever finds one.
EARLIER_CHECKPOINTS = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """Which part of the log to export: a whole shard, or a range that may be open at its end, narrowed by time."""

    shard: int | None = None
    first: int = 0
    end: int = 0
    times: RecordFilter = field(default_factory=RecordFilter)
    resume: int = 0
    known_size: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    """What an export will bring, fixed when it begins."""

    shard: Shard
    first: int
    end: int
    checkpoint: SignedCheckpoint
    verifier_key: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The record that says who erased a payload, proved against a checkpoint of its shard."""

    sequence: int
    record: LoggedRecord
    hashes: list[bytes]
    checkpoint: SignedCheckpoint


@dataclass(frozen=True, slots=True)
class Proof:
    """What ties the records to the header's checkpoint."""

    first: list[bytes]
    last: list[bytes]
    opening: LoggedRecord | None
    opening_hashes: list[bytes]
    known: list[bytes]


Part = Header | list[LoggedRecord] | SignedCheckpoint | Explanation | Proof


class ExportRecords:
    """Sends a part of a shard in log order and then its proof, page by page, whatever its size. A log that was tampered with
    is exported as it is, with the last checkpoint that was signed before: that is what its verifier needs to see."""

    def __init__(
        self, log: LogReader, shards: Shards, checkpoints: Checkpoints, store: CheckpointStore, prove: Prove
    ) -> None:
        self._log, self._shards = log, shards
        self._checkpoints, self._store, self._prove = checkpoints, store, prove

    async def __call__(self, asked: Asked) -> AsyncIterator[Part]:
        """Yield the header, records with the explanations of erased ones before them, checkpoints, and the proof.

        Whoever has a page has all that explains it: an export that broke off goes on behind the last page that came."""
        header = await self._header(asked)
        yield header
        async for page in self._pages(Span(max(header.first, asked.resume), header.end, ascending=True)):
            async for explanation in self._explanations(header, page):
                yield explanation
            yield page
        async for checkpoint in self._earlier(header):
            yield checkpoint
        yield await self._proof(header, asked.known_size)

    async def _header(self, asked: Asked) -> Header:
        shard = await (self._shards.containing(asked.first) if asked.shard is None else self._shards.shard(asked.shard))
        if shard is None:
            raise record_not_found(str(asked.first)) if asked.shard is None else refused("shard_unknown")
        if shard.drop_time is not None:
            raise refused("dropped")
        checkpoint = await self._checkpoint(shard.number)
        first = asked.first if asked.shard is None else shard.first_sequence
        end = min(asked.end or LAST_SEQUENCE, checkpoint.first_sequence + checkpoint.size)
        first, end = await self._narrowed(asked.times, first, end)
        if first >= end:
            raise record_not_found(str(first))
        return Header(shard, first, end, checkpoint, await self._checkpoints.verifier_key())

    async def _checkpoint(self, shard: int) -> SignedCheckpoint:
        try:
            return await self._checkpoints.of(shard)
        except MeshError:
            # What is stored no longer fits what was signed, so nothing more is signed. The last checkpoint still says what it said.
            last = await self._store.page(shard, range(LAST_SEQUENCE), 1, ascending=False)
            if not last:
                raise
            return last[0]

    async def _narrowed(self, times: RecordFilter, first: int, end: int) -> tuple[int, int]:
        if not times.terms():
            return first, end
        lowest = await self._log.page(times, Span(first, end, ascending=True), 1)
        highest = await self._log.page(times, Span(first, end, ascending=False), 1)
        if not lowest.records or not highest.records:
            return first, first
        return lowest.records[0].sequence, highest.records[0].sequence + 1

    async def _pages(self, span: Span) -> AsyncIterator[list[LoggedRecord]]:
        more = span.first < span.end
        while more:
            page = await self._log.page(RecordFilter(), span, PAGE_SIZE)
            if page.records:
                yield page.records
                span = span.after(page.records[-1].sequence)
            more = page.more

    async def _explanations(self, header: Header, page: list[LoggedRecord]) -> AsyncIterator[Explanation]:
        """Explain what was erased, where the explanation is not itself a part of the export."""
        covered = header.checkpoint.first_sequence + header.checkpoint.size
        for erased in page:
            place = erased.erased_by
            if place is None or header.first <= place < header.end:
                continue
            record = await self._log.by_sequence(header.shard.log_id, place)
            if record is not None:
                beyond = record.shard != header.shard.number or place >= covered
                checkpoint = await self._checkpoint(record.shard) if beyond else header.checkpoint
                yield Explanation(erased.sequence, record, await self._path(place, checkpoint.size), checkpoint)

    async def _earlier(self, header: Header) -> AsyncIterator[SignedCheckpoint]:
        shard, start = header.shard.number, header.checkpoint.first_sequence
        size, end = header.first - start, min(header.end - start + 1, header.checkpoint.size)
        step = max(1, (end - size) // EARLIER_CHECKPOINTS)
        while found := await self._store.page(shard, range(size + 1, end), 1, ascending=True):
            yield found[0]
            size = max(found[0].size, size + step)

    async def _proof(self, header: Header, known_size: int) -> Proof:
        size, shard = header.checkpoint.size, header.shard
        apart = shard.number > 0 and header.first > shard.first_sequence
        opening = await self._log.by_sequence(shard.log_id, shard.first_sequence) if apart else None
        first = await self._path(header.first, size)
        return Proof(
            first=first,
            last=first if header.end == header.first + 1 else await self._path(header.end - 1, size),
            opening=opening,
            opening_hashes=await self._path(shard.first_sequence, size) if opening else [],
            known=await self._continuation(shard.number, known_size, size) if 0 < known_size <= size else [],
        )

    async def _path(self, sequence: int, size: int) -> list[bytes]:
        try:
            return (await self._prove.inclusion(sequence, size)).hashes
        except MeshError:
            # What is missing for the proof is missing in the log; the export shows it without.
            return []

    async def _continuation(self, shard: int, known_size: int, size: int) -> list[bytes]:
        try:
            return (await self._prove.consistency(shard, known_size, size)).hashes
        except MeshError:
            return []
