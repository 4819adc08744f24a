"""Writes an export folder, which an auditor can verify offline with only the public key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from toolmesh_sdk.audit.export.ocsf import ocsf_line
from toolmesh_sdk.audit.export.parquet import ParquetRecords
from toolmesh_sdk.audit.format.canonical import canonical
from toolmesh_sdk.audit.format.events import RecordLocation, write_line
from toolmesh_sdk.audit.format.log_events import ShardLink, previous_shard
from toolmesh_sdk.audit.format.manifest import LEAVES, OCSF, PARQUET, PROOFS, RECORDS_PATTERN, Manifest, measure_file
from toolmesh_sdk.audit.format.notes import Note

RECORDS_PER_FILE = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The range and checkpoint of an export, fixed by the log when the export starts."""

    shard: int
    shard_first_sequence: int
    first_sequence: int
    end_sequence: int
    checkpoint: str
    verifier_key: str


@dataclass(slots=True)
class Evidence:
    """The content of proofs.json. Hashes are hexadecimal."""

    first: list[str] = field(default_factory=list)
    """The inclusion path of the first record."""
    last: list[str] = field(default_factory=list)
    """The inclusion path of the last record."""
    opening: dict[str, Any] | None = None
    """`{"record": ..., "path": [...]}` of the record that opened the shard, if it is not in the export."""
    checkpoints: list[str] = field(default_factory=list)
    erasures: list[dict[str, Any]] = field(default_factory=list)
    """`{"sequence", "leaf_index", "record", "path", "checkpoint"}` of each erasure that is recorded elsewhere."""
    known: dict[str, Any] | None = None
    """`{"size", "path"}`: the consistency proof from an earlier checkpoint of the exporter."""


class ExportWriter:
    """Writes the records of one export in bounded memory. The export is complete when `finish` returns: the manifest is
    written last."""

    def __init__(
        self,
        folder: Path,
        header: Header,
        *,
        parquet: bool = False,
        ocsf: bool = False,
        per_file: int = RECORDS_PER_FILE,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FileExistsError(f"{folder} is not empty")
        self._folder, self._header, self._per_file = folder, header, per_file
        self._log = Note.parse(header.checkpoint).log
        self._names = [PROOFS, LEAVES]
        self._written = 0
        self._link: ShardLink | None = None
        self._leaves: BinaryIO = (folder / LEAVES).open("wb")
        self._records: BinaryIO | None = None
        self._ocsf: BinaryIO | None = self._open(OCSF) if ocsf else None
        self._parquet = ParquetRecords(folder / PARQUET) if parquet else None
        self._names += [PARQUET] if parquet else []

    @property
    def next_sequence(self) -> int:
        """The sequence of the next record."""
        return self._header.first_sequence + self._written

    @property
    def written(self) -> int:
        """The number of written records."""
        return self._written

    def replace_header(self, header: Header) -> None:
        """Replace the header: a resumed export of the same range may be proved against a later checkpoint."""
        if (header.shard, header.first_sequence, header.end_sequence) != (
            *(self._header.shard, self._header.first_sequence),
            self._header.end_sequence,
        ):
            raise ValueError("the resumed export has another range")
        self._header = header

    def add(self, sequence: int, leaf: bytes, payload: bytes) -> None:
        """Add the next record; the payload of an erased record is empty. Raises ValueError for any other sequence."""
        if sequence != self.next_sequence:
            raise ValueError(f"expected sequence {self.next_sequence}, got {sequence}")
        location = RecordLocation(self._log, self._header.shard, sequence)
        line, form = write_line(location, leaf, payload)
        self._current_file().write(line + b"\n")
        self._leaves.write(leaf)
        self._write_derived(location, leaf, payload, form)
        if sequence == self._header.shard_first_sequence:
            self._link = previous_shard(form)
        self._written += 1

    def finish(self, evidence: Evidence) -> str:
        """Write the proofs and the manifest; return the manifest's digest. Raises ValueError if records are missing."""
        if self.next_sequence != self._header.end_sequence:
            raise ValueError(f"records from sequence {self.next_sequence} on are missing")
        self.close()
        if evidence.opening is not None:
            self._link = previous_shard(evidence.opening["record"])
        (self._folder / PROOFS).write_bytes(canonical(self._proofs_document(evidence)) + b"\n")
        manifest = Manifest(
            log=self._log,
            shard=self._header.shard,
            shard_first_sequence=self._header.shard_first_sequence,
            first_sequence=self._header.first_sequence,
            end_sequence=self._header.end_sequence,
            checkpoint=self._header.checkpoint,
            verifier_key=self._header.verifier_key,
            previous_shard=self._link.to_dict() if self._link else None,
            files={name: measure_file(self._folder / name) for name in self._names},
        )
        return manifest.write(self._folder)

    def close(self) -> None:
        """Close the files; the written records stay."""
        for file in (self._leaves, self._records, self._ocsf):
            if file is not None and not file.closed:
                file.close()
        if self._parquet is not None:
            self._parquet.close()
            self._parquet = None

    def _write_derived(
        self, location: RecordLocation, leaf: bytes, payload: bytes, form: Mapping[str, Any] | None
    ) -> None:
        try:
            if self._ocsf is not None and form is not None:
                self._ocsf.write(ocsf_line(location, leaf, form) + b"\n")
            if self._parquet is not None:
                self._parquet.add(location, leaf, payload, form)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"sequence {location.sequence} is not a record: {error!r}") from None

    def _current_file(self) -> BinaryIO:
        if self._records is None or self._written % self._per_file == 0:
            if self._records is not None:
                self._records.close()
            self._records = self._open(RECORDS_PATTERN.format(self._written // self._per_file))
        return self._records

    def _open(self, name: str) -> BinaryIO:
        self._names.append(name)
        return (self._folder / name).open("wb")

    def _proofs_document(self, evidence: Evidence) -> dict[str, Any]:
        return {
            "first": {"sequence": self._header.first_sequence, "path": evidence.first},
            "last": {"sequence": self._header.end_sequence - 1, "path": evidence.last},
            "opening": evidence.opening,
            "checkpoints": evidence.checkpoints,
            "erasures": evidence.erasures,
            "known": evidence.known,
        }
