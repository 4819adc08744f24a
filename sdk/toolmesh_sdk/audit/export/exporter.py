"""Exports records from a running mesh to a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from toolmesh.audit.v1 import audit_record_pb2, shard_pb2
from toolmesh.audit.v1 import audit_service_pb2 as pb

from toolmesh_sdk._wire.times import to_timestamp
from toolmesh_sdk.audit.export.writer import Evidence, ExportWriter, Header
from toolmesh_sdk.audit.format.canonical import parse
from toolmesh_sdk.audit.format.manifest import write_index
from toolmesh_sdk.audit.format.notes import Note
from toolmesh_sdk.audit.remote import RemoteLog, is_missing
from toolmesh_sdk.errors import ToolmeshError

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The part of the log to export: one shard, or ranges of sequences and times; None is unbounded."""

    shard: int | None = None
    first: int | None = None
    end: int | None = None
    from_time: datetime | None = None
    to_time: datetime | None = None

    def request(self, shard: shard_pb2.Shard) -> pb.ExportRecordsRequest | None:
        """Return the request for a shard; None if it is not selected or its records were dropped."""
        shard_end = shard.first_sequence + shard.tree_size
        first = max(shard.first_sequence, self.first or 0)
        end = shard_end if self.end is None else min(shard_end, self.end)
        dropped = shard.state == shard_pb2.SHARD_STATE_DROPPED
        if first >= end or dropped or self.shard not in (None, shard.number):
            return None
        # Without an end, the export goes up to its checkpoint, even if the log grows.
        part = pb.SequenceRange(first_sequence=first, end_sequence=0 if self.end is None else end)
        return pb.ExportRecordsRequest(
            range=part,
            from_time=to_timestamp(self.from_time),
            to_time=to_timestamp(self.to_time),
        )


@dataclass(frozen=True, slots=True)
class ExportResult:
    """A finished export: the manifest digest of each folder, and the number of records."""

    digests: dict[str, str]
    records: int
    verifier_key: str


def export(
    log: RemoteLog,
    folder: Path,
    selection: Selection,
    *,
    parquet: bool = False,
    ocsf: bool = False,
    known: dict[int, int] | None = None,
    progress: Progress = lambda count: None,
) -> ExportResult:
    """Export the selection. One shard is written to the folder itself; several are written to subfolders with an index.
    `known` maps shards to the sizes of earlier checkpoints: the export proves that it extends them.

    Raises ToolmeshError, OSError, and ValueError if the records are not in order.
    """
    selected = [(shard, request) for shard in log.shards() if (request := selection.request(shard)) is not None]
    alone = len(selected) == 1
    digests: dict[str, str] = {}
    records, key = 0, ""
    for shard, request in selected:
        name = "." if alone else f"shard-{shard.number:05d}"
        request.known_size = (known or {}).get(shard.number, 0)
        try:
            shard_export = _ShardExport(
                folder / name, request, {"parquet": parquet, "ocsf": ocsf}, partial(_report_total, progress, records)
            )
            digests[name] = shard_export.run(log)
        except ToolmeshError as error:
            if not is_missing(error) or alone:
                raise
            continue
        records, key = records + shard_export.written, shard_export.verifier_key
    if digests and not alone:
        write_index(folder, shard_export.log, digests)
    return ExportResult(digests, records, key)


def _report_total(progress: Progress, before: int, count: int) -> None:
    progress(before + count)


class _ShardExport:
    """Writes the export stream of one shard to a folder."""

    def __init__(
        self, folder: Path, request: pb.ExportRecordsRequest, forms: dict[str, bool], progress: Progress
    ) -> None:
        self._folder, self._request, self._forms, self._progress = folder, request, forms, progress
        self._writer: ExportWriter | None = None
        self._evidence = Evidence()
        self._erasures: dict[int, dict[str, Any]] = {}
        self._checkpoints: dict[int, str] = {}
        self.verifier_key = self.log = ""

    @property
    def written(self) -> int:
        """The number of written records."""
        return self._writer.written if self._writer else 0

    def run(self, log: RemoteLog) -> str:
        """Write all parts; return the digest of the manifest."""
        try:
            for part in log.export(self._request):
                kind = part.WhichOneof("part")
                getattr(self, f"_write_{kind}")(getattr(part, kind))
        finally:
            if self._writer is not None:
                self._writer.close()
        if self._writer is None:
            raise ValueError("the export is empty")
        self._evidence.erasures = [self._erasures[sequence] for sequence in sorted(self._erasures)]
        self._evidence.checkpoints = [self._checkpoints[size] for size in sorted(self._checkpoints)]
        return self._writer.finish(self._evidence)

    def _write_header(self, header: pb.ExportHeader) -> None:
        self.verifier_key, self.log = header.verifier_key, Note.parse(header.checkpoint.note).log
        written_header = Header(
            shard=header.shard.number,
            shard_first_sequence=header.shard.first_sequence,
            first_sequence=header.first_sequence,
            end_sequence=header.end_sequence,
            checkpoint=note_with_witnesses(header.checkpoint),
            verifier_key=header.verifier_key,
        )
        if self._writer is None:
            self._writer = ExportWriter(self._folder, written_header, **self._forms)
        else:
            self._writer.replace_header(written_header)

    def _write_records(self, part: pb.ExportedRecords) -> None:
        assert self._writer is not None
        for record in part.records:
            self._writer.add(record.sequence, record.leaf_hash, record.canonical_json)
        self._progress(self._writer.written)

    def _write_checkpoint(self, checkpoint: Any) -> None:
        self._checkpoints[checkpoint.tree_size] = note_with_witnesses(checkpoint)

    def _write_erasure(self, erasure: pb.ErasureEvidence) -> None:
        self._erasures[erasure.sequence] = {
            "sequence": erasure.sequence,
            "leaf_index": erasure.record.sequence - erasure.checkpoint.first_sequence,
            "record": _parse_record(erasure.record),
            "path": [each.hex() for each in erasure.hashes],
            "checkpoint": note_with_witnesses(erasure.checkpoint),
        }

    def _write_proof(self, proof: pb.ExportProof) -> None:
        self._evidence.first = [each.hex() for each in proof.first_hashes]
        self._evidence.last = [each.hex() for each in proof.last_hashes]
        if proof.HasField("opening"):
            path = [each.hex() for each in proof.opening_hashes]
            self._evidence.opening = {"record": _parse_record(proof.opening), "path": path}
        if self._request.known_size:
            path = [each.hex() for each in proof.known_hashes]
            self._evidence.known = {"size": self._request.known_size, "path": path}


def note_with_witnesses(checkpoint: Any) -> str:
    """Return the note of a checkpoint, with the signature lines of its witnesses."""
    return str(checkpoint.note) + "".join(line.removesuffix("\n") + "\n" for line in checkpoint.witness_signatures)


def _parse_record(record: audit_record_pb2.LoggedRecord) -> Any:
    return parse(record.canonical_json)
