"""Exports a part of the log with its proofs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from libs.common.errors import MeshError
from services.audit.domain.errors import record_not_found
from services.audit.domain.evidence.checkpoints import CheckpointSigner
from services.audit.domain.evidence.errors import condition_error
from services.audit.domain.evidence.model import Shard
from services.audit.domain.evidence.ports import CheckpointStore, ShardStore
from services.audit.domain.evidence.prove import Prover
from services.audit.domain.model import LAST_SEQUENCE, LoggedRecord, RecordFilter, SignedCheckpoint, Span
from services.audit.domain.ports import LogReader

PAGE_SIZE = 500
# Enough checkpoints, evenly spread, to narrow a change down.
EARLIER_CHECKPOINTS = 64


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The part of the log to export: a shard, or a range of sequences (`end` 0: no end), optionally narrowed by
    time."""

    shard: int | None = None
    first: int = 0
    end: int = 0
    times: RecordFilter = field(default_factory=RecordFilter)
    resume: int = 0
    known_size: int = 0


@dataclass(frozen=True, slots=True)
class ExportHeader:
    """The contents of an export, fixed at its start."""

    shard: Shard
    first: int
    end: int
    checkpoint: SignedCheckpoint
    verifier_key: str


@dataclass(frozen=True, slots=True)
class ErasureEvidence:
    """The record of an erasure, with its proof against a checkpoint of its shard."""

    sequence: int
    record: LoggedRecord
    hashes: list[bytes]
    checkpoint: SignedCheckpoint


@dataclass(frozen=True, slots=True)
class ExportProof:
    """Connects the exported records to the header's checkpoint."""

    first: list[bytes]
    last: list[bytes]
    opening: LoggedRecord | None
    opening_hashes: list[bytes]
    known: list[bytes]


ExportPart = ExportHeader | list[LoggedRecord] | SignedCheckpoint | ErasureEvidence | ExportProof


class ExportRecords:
    """Streams a part of a shard in log order, followed by its proof. A tampered log is exported as it is, with the last
    checkpoint signed before: its verifier needs to see it."""

    def __init__(
        self, log: LogReader, shards: ShardStore, checkpoints: CheckpointSigner, store: CheckpointStore, prover: Prover
    ) -> None:
        self._log, self._shards = log, shards
        self._checkpoints, self._store, self._prover = checkpoints, store, prover

    async def stream(self, request: ExportRequest) -> AsyncIterator[ExportPart]:
        """Yield the header, the pages, the checkpoints and the proof.

        Evidence of erasures precedes the page that needs it, so an interrupted export can continue after the last
        complete page.
        """
        header = await self._header(request)
        yield header
        async for page in self._read_pages(Span(max(header.first, request.resume), header.end, ascending=True)):
            async for evidence in self._erasure_evidence(header, page):
                yield evidence
            yield page
        async for checkpoint in self._earlier_checkpoints(header):
            yield checkpoint
        yield await self._proof(header, request.known_size)

    async def _header(self, request: ExportRequest) -> ExportHeader:
        shard = await (
            self._shards.find_containing(request.first) if request.shard is None else self._shards.get(request.shard)
        )
        if shard is None:
            raise record_not_found(str(request.first)) if request.shard is None else condition_error("shard_unknown")
        if shard.drop_time is not None:
            raise condition_error("dropped")
        checkpoint = await self._checkpoint(shard.number)
        first = request.first if request.shard is None else shard.first_sequence
        end = min(request.end or LAST_SEQUENCE, checkpoint.first_sequence + checkpoint.size)
        first, end = await self._narrow_by_time(request.times, first, end)
        if first >= end:
            raise record_not_found(str(first))
        return ExportHeader(shard, first, end, checkpoint, await self._checkpoints.verifier_key())

    async def _checkpoint(self, shard: int) -> SignedCheckpoint:
        try:
            return await self._checkpoints.for_shard(shard)
        except MeshError:
            # The stored records no longer match the signed ones, so signing fails. The last checkpoint is still valid.
            last = await self._store.page(shard, range(LAST_SEQUENCE), 1, ascending=False)
            if not last:
                raise
            return last[0]

    async def _narrow_by_time(self, times: RecordFilter, first: int, end: int) -> tuple[int, int]:
        if not times.terms():
            return first, end
        lowest = await self._log.page(times, Span(first, end, ascending=True), 1)
        highest = await self._log.page(times, Span(first, end, ascending=False), 1)
        if not lowest.records or not highest.records:
            return first, first
        return lowest.records[0].sequence, highest.records[0].sequence + 1

    async def _read_pages(self, span: Span) -> AsyncIterator[list[LoggedRecord]]:
        more = span.first < span.end
        while more:
            page = await self._log.page(RecordFilter(), span, PAGE_SIZE)
            if page.records:
                yield page.records
                span = span.after(page.records[-1].sequence)
            more = page.more

    async def _erasure_evidence(self, header: ExportHeader, page: list[LoggedRecord]) -> AsyncIterator[ErasureEvidence]:
        """Yield the evidence of erasures whose record is not part of the export."""
        covered = header.checkpoint.first_sequence + header.checkpoint.size
        for erased in page:
            erased_by = erased.erased_by
            if erased_by is None or header.first <= erased_by < header.end:
                continue
            record = await self._log.get_by_sequence(header.shard.log_id, erased_by)
            if record is not None:
                beyond = record.shard != header.shard.number or erased_by >= covered
                checkpoint = await self._checkpoint(record.shard) if beyond else header.checkpoint
                yield ErasureEvidence(
                    erased.sequence, record, await self._inclusion_hashes(erased_by, checkpoint.size), checkpoint
                )

    async def _earlier_checkpoints(self, header: ExportHeader) -> AsyncIterator[SignedCheckpoint]:
        shard, start = header.shard.number, header.checkpoint.first_sequence
        size, end = header.first - start, min(header.end - start + 1, header.checkpoint.size)
        step = max(1, (end - size) // EARLIER_CHECKPOINTS)
        while checkpoints := await self._store.page(shard, range(size + 1, end), 1, ascending=True):
            yield checkpoints[0]
            size = max(checkpoints[0].size, size + step)

    async def _proof(self, header: ExportHeader, known_size: int) -> ExportProof:
        size, shard = header.checkpoint.size, header.shard
        needs_opening = shard.number > 0 and header.first > shard.first_sequence
        opening = await self._log.get_by_sequence(shard.log_id, shard.first_sequence) if needs_opening else None
        first = await self._inclusion_hashes(header.first, size)
        return ExportProof(
            first=first,
            last=first if header.end == header.first + 1 else await self._inclusion_hashes(header.end - 1, size),
            opening=opening,
            opening_hashes=await self._inclusion_hashes(shard.first_sequence, size) if opening else [],
            known=await self._consistency_hashes(shard.number, known_size, size) if 0 < known_size <= size else [],
        )

    async def _inclusion_hashes(self, sequence: int, size: int) -> list[bytes]:
        try:
            return (await self._prover.prove_inclusion(sequence, size)).hashes
        except MeshError:
            # The hashes are missing in the log; the export shows that by an empty proof.
            return []

    async def _consistency_hashes(self, shard: int, known_size: int, size: int) -> list[bytes]:
        try:
            return (await self._prover.prove_consistency(shard, known_size, size)).hashes
        except MeshError:
            return []
