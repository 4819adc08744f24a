"""Takes an export off a running mesh and writes it to a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import audit_record_pb2, shard_pb2
from toolmesh.audit.v1 import audit_service_pb2 as pb

from toolmesh_sdk.audit.export.writer import Evidence, ExportWriter, Header
from toolmesh_sdk.audit.format.canonical import parse
from toolmesh_sdk.audit.format.manifest import write_index
from toolmesh_sdk.audit.format.notes import Note
from toolmesh_sdk.audit.remote import RemoteLog, is_missing
from toolmesh_sdk.errors import ToolmeshError

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which part of the log: one shard, or sequences and times from-to; what is None does not narrow."""

    shard: int | None = None
    first: int | None = None
    end: int | None = None
    from_time: datetime | None = None
    to_time: datetime | None = None

    def request(self, shard: shard_pb2.Shard) -> pb.ExportRecordsRequest | None:
        """Return what to ask for of a shard; None if nothing of it is wanted, or its records are gone."""
        behind = shard.first_sequence + shard.tree_size
        first, end = max(shard.first_sequence, self.first or 0), behind if self.end is None else min(behind, self.end)
        dropped = shard.state == shard_pb2.SHARD_STATE_DROPPED
        if first >= end or dropped or self.shard not in (None, shard.number):
            return None
        # Without an end of its own it goes as far as its checkpoint, also in a log that grows.
        part = pb.SequenceRange(first_sequence=first, end_sequence=0 if self.end is None else end)
        return pb.ExportRecordsRequest(
            range=part,
            from_time=_stamp(self.from_time),
            to_time=_stamp(self.to_time),
        )


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: the folder of each part with the digest of its manifest, and how many records there are."""

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
) -> Exported:
    """Write an export of the selected part. One shard lies in the folder itself; several lie in folders of their own, with an
    index beside them. `known` are the sizes of checkpoints that were kept, by shard: the export proves that it continues them.

    Raises ToolmeshError, OSError, and ValueError for a log whose records cannot be exported because they are not in order.
    """
    wanted = [(shard, request) for shard in log.shards() if (request := selection.request(shard)) is not None]
    alone = len(wanted) == 1
    digests: dict[str, str] = {}
    records, key = 0, ""
    for shard, request in wanted:
        name = "." if alone else f"shard-{shard.number:05d}"
        request.known_size = (known or {}).get(shard.number, 0)
        try:
            taken = _Taking(
                folder / name, request, {"parquet": parquet, "ocsf": ocsf}, partial(_add, progress, records)
            )
            digests[name] = taken.run(log)
        except ToolmeshError as error:
            if not is_missing(error) or alone:
                raise
            continue
        records, key = records + taken.written, taken.verifier_key
    if digests and not alone:
        write_index(folder, taken.log, digests)
    return Exported(digests, records, key)


def _add(progress: Progress, before: int, count: int) -> None:
    progress(before + count)


class _Taking:
    """One export on its way from the stream to the folder."""

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
        """How many records were written."""
        return self._writer.written if self._writer else 0

    def run(self, log: RemoteLog) -> str:
        """Take all parts; return the digest of the manifest."""
        try:
            for part in log.export(self._request):
                kind = part.WhichOneof("part")
                getattr(self, f"_take_{kind}")(getattr(part, kind))
        finally:
            if self._writer is not None:
                self._writer.close()
        if self._writer is None:
            raise ValueError("the export brought nothing")
        self._evidence.erasures = [self._erasures[place] for place in sorted(self._erasures)]
        self._evidence.checkpoints = [self._checkpoints[size] for size in sorted(self._checkpoints)]
        return self._writer.finish(self._evidence)

    def _take_header(self, header: pb.ExportHeader) -> None:
        self.verifier_key, self.log = header.verifier_key, Note.parse(header.checkpoint.note).log
        made = Header(
            shard=header.shard.number,
            shard_first_sequence=header.shard.first_sequence,
            first_sequence=header.first_sequence,
            end_sequence=header.end_sequence,
            checkpoint=full_note(header.checkpoint),
            verifier_key=header.verifier_key,
        )
        if self._writer is None:
            self._writer = ExportWriter(self._folder, made, **self._forms)
        else:
            self._writer.renew(made)

    def _take_records(self, part: pb.ExportedRecords) -> None:
        assert self._writer is not None
        for record in part.records:
            self._writer.add(record.sequence, record.leaf_hash, record.canonical_json)
        self._progress(self._writer.written)

    def _take_checkpoint(self, checkpoint: Any) -> None:
        self._checkpoints[checkpoint.tree_size] = full_note(checkpoint)

    def _take_erasure(self, erasure: pb.ErasureEvidence) -> None:
        self._erasures[erasure.sequence] = {
            "sequence": erasure.sequence,
            "leaf_index": erasure.record.sequence - erasure.checkpoint.first_sequence,
            "record": _form(erasure.record),
            "path": [each.hex() for each in erasure.hashes],
            "checkpoint": full_note(erasure.checkpoint),
        }

    def _take_proof(self, proof: pb.ExportProof) -> None:
        self._evidence.first = [each.hex() for each in proof.first_hashes]
        self._evidence.last = [each.hex() for each in proof.last_hashes]
        if proof.HasField("opening"):
            path = [each.hex() for each in proof.opening_hashes]
            self._evidence.opening = {"record": _form(proof.opening), "path": path}
        if self._request.known_size:
            path = [each.hex() for each in proof.known_hashes]
            self._evidence.known = {"size": self._request.known_size, "path": path}


def full_note(checkpoint: Any) -> str:
    """Return a checkpoint with the lines of its witnesses."""
    return str(checkpoint.note) + "".join(line.removesuffix("\n") + "\n" for line in checkpoint.witness_signatures)


def _form(record: audit_record_pb2.LoggedRecord) -> Any:
    return parse(record.canonical_json)


def _stamp(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp
