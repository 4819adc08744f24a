"""An export as it lies in its folder: read as a stream, one line at a time, whatever its size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolmesh_sdk.audit.format.canonical import UnreadableJsonError, canonical, parse
from toolmesh_sdk.audit.format.events import Line, Place, read_line
from toolmesh_sdk.audit.format.manifest import LEAVES, MANIFEST, PROOFS, Manifest, facts_of
from toolmesh_sdk.audit.format.merkle import HASH_BYTES
from toolmesh_sdk.audit.verify.report import Finding, Kind

# A record is at most a mebibyte. A longer line is not one of an export, and is never held in memory.
MAX_LINE_BYTES = 4 * 1024 * 1024
_LEAVES_AT_A_TIME = 4096


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of one export."""

    path: Path
    manifest: Manifest

    def file_findings(self) -> list[Finding]:
        """Compare the files with what the manifest says of them."""
        shard, expected = self.manifest.shard, self.manifest.files
        present = {each.name for each in self.path.iterdir() if each.name != MANIFEST}
        found = []
        for name in sorted(present | set(expected)):
            detail = ""
            if name not in present:
                detail = "the file is missing"
            elif name not in expected:
                detail = "the manifest does not know this file"
            elif not (self.path / name).is_file() or facts_of(self.path / name) != expected[name]:
                detail = "the file is not the one that the manifest describes"
            if detail:
                found.append(Finding(Kind.FILE, detail, shard=shard, file=name))
        return found

    def raw_lines(self, names: list[str] | None = None) -> Iterator[bytes]:
        """Yield the lines of the record files in order; of a file that is missing, none."""
        for name in self.manifest.record_files if names is None else names:
            path = self.path / name
            if not path.is_file():
                continue
            with path.open("rb") as file:
                while line := file.readline(MAX_LINE_BYTES):
                    yield line.removesuffix(b"\n")

    def lines(self) -> Iterator[Line | None]:
        """Yield the records in order; None for a line that cannot be read."""
        m = self.manifest
        for sequence, raw in enumerate(self.raw_lines(), start=m.first_sequence):
            try:
                yield read_line(raw, Place(m.log, m.shard, sequence))
            except UnreadableJsonError:
                yield None

    def leaves(self) -> Iterator[bytes]:
        """Yield the leaf hashes of the list, in order."""
        path = self.path / LEAVES
        if not path.is_file():
            return
        with path.open("rb") as file:
            while block := file.read(HASH_BYTES * _LEAVES_AT_A_TIME):
                for start in range(0, len(block), HASH_BYTES):
                    yield block[start : start + HASH_BYTES]

    def proofs(self) -> dict[str, Any]:
        """Return proofs.json. Raises UnreadableJsonError for what no export was written with."""
        try:
            payload = (self.path / PROOFS).read_bytes()
        except OSError as error:
            raise UnreadableJsonError(f"{PROOFS} cannot be read: {error.strerror}") from None
        content = parse(payload)
        if not isinstance(content, dict) or canonical(content) + b"\n" != payload:
            raise UnreadableJsonError(f"{PROOFS} is not written as exports are written")
        return content
