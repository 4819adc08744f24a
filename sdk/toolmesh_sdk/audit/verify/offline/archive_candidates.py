"""Selects the shards of an export that can be recorded as archived."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolmesh.audit.v1 import shard_pb2

from toolmesh_sdk.audit.format.manifest import INDEX, MANIFEST, TamperedManifestError, UnreadableExportError, read_index
from toolmesh_sdk.audit.format.notes import VerifierKey
from toolmesh_sdk.audit.verify.offline.verify_export import verify_export


class NotAnArchiveError(ValueError):
    """The folder is not a valid archive of the log's shards."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A folder with one complete shard, and the digest of its manifest."""

    shard: int
    digest: str


def find_archives(folder: Path, key: VerifierKey, present: Sequence[shard_pb2.Shard]) -> list[Archive]:
    """Return the closed shards of an export. Each is verified with the key and compared with the log, because this is
    impossible once its records are dropped. Raises NotAnArchiveError for the first mismatch, or if there is none."""
    candidates = [_check_archive(shard_folder, key, present) for shard_folder in _folders(folder)]
    closed = [archive for archive in candidates if archive is not None]
    if not closed:
        raise NotAnArchiveError("it holds no closed shard")
    return closed


def _folders(folder: Path) -> list[Path]:
    if (folder / MANIFEST).exists() or not (folder / INDEX).exists():
        return [folder]
    try:
        return [folder / name for name in sorted(read_index(folder))]
    except (UnreadableExportError, TamperedManifestError) as error:
        raise NotAnArchiveError(str(error)) from None


def _check_archive(folder: Path, key: VerifierKey, present: Sequence[shard_pb2.Shard]) -> Archive | None:
    report = verify_export(folder, key, whole=True)
    if report.exit_code or len(report.shards) != 1:
        first = report.first
        raise NotAnArchiveError(f"{first.detail} ({first.location})" if first else "; ".join(report.problems))
    [held] = report.shards
    known = next((each for each in present if each.number == held.number), None)
    if known is not None and known.state == shard_pb2.SHARD_STATE_OPEN:
        return None
    if known is None or (known.tree_size, known.root_hash.hex()) != (held.tree_size, held.root_hash):
        raise NotAnArchiveError(f"shard {held.number} of the log differs")
    return Archive(held.number, "sha256:" + hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest())
