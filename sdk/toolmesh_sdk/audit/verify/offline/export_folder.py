"""Reads the files of an export folder as streams, with bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolmesh_sdk.audit.format.canonical import UnreadableJsonError, canonical, parse
from toolmesh_sdk.audit.format.events import Line, RecordLocation, read_line
from toolmesh_sdk.audit.format.manifest import LEAVES, MANIFEST, PROOFS, Manifest, measure_file
from toolmesh_sdk.audit.format.merkle import HASH_BYTES
from toolmesh_sdk.audit.verify.report import Finding, Kind

# Records have at most one mebibyte; longer lines are not part of an export and are never held in memory.
MAX_LINE_BYTES = 4 * 1024 * 1024
_LEAVES_PER_READ = 4096


@dataclass(frozen=True, slots=True)
class ExportFolder:
    """The files of one export."""

    path: Path
    manifest: Manifest

    def file_findings(self) -> list[Finding]:
        """Compare the files with the manifest."""
        shard, expected = self.manifest.shard, self.manifest.files
        present = {each.name for each in self.path.iterdir() if each.name != MANIFEST}
        findings = []
        for name in sorted(present | set(expected)):
            detail = ""
            if name not in present:
                detail = "the file is missing"
            elif name not in expected:
                detail = "the manifest does not list this file"
            elif not (self.path / name).is_file() or measure_file(self.path / name) != expected[name]:
                detail = "the file differs from the manifest"
            if detail:
                findings.append(Finding(Kind.FILE, detail, shard=shard, file=name))
        return findings

    def raw_lines(self, names: list[str] | None = None) -> Iterator[bytes]:
        """Yield the lines of the record files in order; missing files are skipped."""
        for name in self.manifest.record_files if names is None else names:
            path = self.path / name
            if not path.is_file():
                continue
            with path.open("rb") as file:
                while line := file.readline(MAX_LINE_BYTES):
                    yield line.removesuffix(b"\n")

    def lines(self) -> Iterator[Line | None]:
        """Yield the records in order; None for an unreadable line."""
        m = self.manifest
        for sequence, raw in enumerate(self.raw_lines(), start=m.first_sequence):
            try:
                yield read_line(raw, RecordLocation(m.log, m.shard, sequence))
            except UnreadableJsonError:
                yield None

    def leaves(self) -> Iterator[bytes]:
        """Yield the leaf hashes of leaves.bin, in order."""
        path = self.path / LEAVES
        if not path.is_file():
            return
        with path.open("rb") as file:
            while block := file.read(HASH_BYTES * _LEAVES_PER_READ):
                for start in range(0, len(block), HASH_BYTES):
                    yield block[start : start + HASH_BYTES]

    def proofs(self) -> dict[str, Any]:
        """Return proofs.json. Raises UnreadableJsonError if it is not canonical JSON."""
        try:
            payload = (self.path / PROOFS).read_bytes()
        except OSError as error:
            raise UnreadableJsonError(f"{PROOFS} cannot be read: {error.strerror}") from None
        content = parse(payload)
        if not isinstance(content, dict) or canonical(content) + b"\n" != payload:
            raise UnreadableJsonError(f"{PROOFS} is not canonical JSON")
        return content
