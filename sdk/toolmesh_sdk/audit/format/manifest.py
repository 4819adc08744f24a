"""Reads and writes the manifest of an export. The verifier checks every field."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolmesh_sdk.audit.format.canonical import UnreadableJsonError, canonical, parse

FORMAT, INDEX_FORMAT = "toolmesh-audit-export/1", "toolmesh-audit-exports/1"
MANIFEST, PROOFS, LEAVES, INDEX = "manifest.json", "proofs.json", "leaves.bin", "index.json"
PARQUET, OCSF = "records.parquet", "records.ocsf.ndjson"
RECORDS_PATTERN = "records-{:05d}.ndjson"


class UnreadableExportError(ValueError):
    """The folder is not an export, or its format is unknown."""


class TamperedManifestError(ValueError):
    """The manifest is not one that the exporter writes."""


@dataclass(frozen=True, slots=True)
class FileDigest:
    """The size and digest of a file of the export."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of one export: a part of one shard."""

    log: str
    shard: int
    shard_first_sequence: int
    first_sequence: int
    end_sequence: int
    checkpoint: str
    verifier_key: str
    previous_shard: dict[str, Any] | None
    files: Mapping[str, FileDigest] = field(default_factory=dict)

    def write(self, folder: Path) -> str:
        """Write the manifest in canonical form and return its digest."""
        content = {name: getattr(self, name) for name in _FIELDS if name != "files"}
        content["files"] = {name: {"bytes": f.size, "sha256": f.sha256} for name, f in self.files.items()}
        payload = canonical({"format": FORMAT, **content}) + b"\n"
        (folder / MANIFEST).write_bytes(payload)
        return "sha256:" + hashlib.sha256(payload).hexdigest()

    @property
    def record_files(self) -> list[str]:
        """The record files, in order."""
        return sorted(name for name in self.files if name.startswith("records-") and name.endswith(".ndjson"))


_FIELDS = tuple(Manifest.__dataclass_fields__)
_TYPES: dict[str, tuple[type, ...]] = {
    "log": (str,),
    "shard": (int,),
    "shard_first_sequence": (int,),
    "first_sequence": (int,),
    "end_sequence": (int,),
    "checkpoint": (str,),
    "verifier_key": (str,),
    "previous_shard": (dict, type(None)),
}


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder. Raises UnreadableExportError and TamperedManifestError."""
    try:
        payload = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise UnreadableExportError(f"{folder / MANIFEST} cannot be read: {error.strerror}") from None
    content = _parse_object(payload)
    if content.get("format") != FORMAT and isinstance(content.get("format"), str):
        raise UnreadableExportError(f"the format {content['format']!r} is not {FORMAT}")
    if set(content) != {"format", *_FIELDS} or canonical(content) + b"\n" != payload:
        raise TamperedManifestError("it is not canonical JSON with the fields of an export")
    return Manifest(files=_files(content["files"]), **{name: _checked_value(content, name) for name in _TYPES})


def _parse_object(payload: bytes) -> dict[str, Any]:
    try:
        content = parse(payload)
    except UnreadableJsonError as error:
        raise TamperedManifestError(f"it is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise TamperedManifestError("it is not an object")
    return content


def _checked_value(content: Mapping[str, Any], name: str) -> Any:
    value = content[name]
    if type(value) not in _TYPES[name] or (isinstance(value, int) and value < 0):
        raise TamperedManifestError(f"{name} has an invalid value")
    return value


def _files(content: Any) -> dict[str, FileDigest]:
    if not isinstance(content, dict):
        raise TamperedManifestError("files is not an object")
    files = {}
    for name, facts in content.items():
        # A name that leaves the folder would make the verifier hash other files.
        valid_name = Path(name).name == name and name not in (MANIFEST, ".", "..")
        if not valid_name or not isinstance(facts, dict) or set(facts) != {"bytes", "sha256"}:
            raise TamperedManifestError(f"files has an invalid entry {name!r}")
        files[name] = FileDigest(facts["bytes"], facts["sha256"])
    return files


def measure_file(path: Path) -> FileDigest:
    """Return the size and digest of a file."""
    with path.open("rb") as file:
        return FileDigest(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def write_index(folder: Path, log: str, exports: Mapping[str, str]) -> None:
    """Write the index of an export of several shards: each folder with the digest of its manifest."""
    (folder / INDEX).write_bytes(canonical({"format": INDEX_FORMAT, "log": log, "exports": dict(exports)}) + b"\n")


def read_index(folder: Path) -> dict[str, str]:
    """Return the folders and digests of an export of several shards. Raises like `read_manifest`."""
    try:
        payload = (folder / INDEX).read_bytes()
    except OSError as error:
        raise UnreadableExportError(f"{folder} holds no export: {error.strerror}") from None
    content = _parse_object(payload)
    exports = content.get("exports")
    if content.get("format") != INDEX_FORMAT or not isinstance(exports, dict) or canonical(content) + b"\n" != payload:
        raise TamperedManifestError("it is not canonical JSON with the fields of an export")
    if any(Path(name).name != name or not isinstance(digest, str) for name, digest in exports.items()):
        raise TamperedManifestError("it lists an invalid folder")
    return {str(name): str(digest) for name, digest in exports.items()}
