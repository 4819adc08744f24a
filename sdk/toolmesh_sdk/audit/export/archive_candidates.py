"""Which shards of a log an export can be the archive of."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolmesh.audit.v1 import shard_pb2

from toolmesh_sdk.audit.format.manifest import INDEX, MANIFEST, TamperedManifestError, UnreadableExportError, read_index
from toolmesh_sdk.audit.format.notes import VerifierKey
from toolmesh_sdk.audit.verify.offline import verify_export


class NotAnArchiveError(ValueError):
    """The folder does not hold what it would be noted as."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A folder that holds one shard whole, and the digest that names it."""

    shard: int
    digest: str


def archives_in(folder: Path, key: VerifierKey, present: Sequence[shard_pb2.Shard]) -> list[Archive]:
    """Return what of an export can be noted: every shard that is closed. Each is verified as a whole by the key and compared with
    what the log says of it: once its records are dropped, nobody can. Raises NotAnArchiveError at the first that does not fit, and if there is none."""
    found = [_archive(each, key, present) for each in _folders(folder)]
    closed = [each for each in found if each is not None]
    if not closed:
        raise NotAnArchiveError("it holds no shard that is closed")
    return closed


def _folders(folder: Path) -> list[Path]:
    if (folder / MANIFEST).exists() or not (folder / INDEX).exists():
        return [folder]
    try:
        return [folder / name for name in sorted(read_index(folder))]
    except (UnreadableExportError, TamperedManifestError) as error:
        raise NotAnArchiveError(str(error)) from None


def _archive(folder: Path, key: VerifierKey, present: Sequence[shard_pb2.Shard]) -> Archive | None:
    report = verify_export(folder, key, whole=True)
    if report.exit_code or len(report.shards) != 1:
        first = report.first
        raise NotAnArchiveError(f"{first.detail} ({first.place})" if first else "; ".join(report.problems))
    [held] = report.shards
    known = next((each for each in present if each.number == held.number), None)
    if known is not None and known.state == shard_pb2.SHARD_STATE_OPEN:
        return None
    if known is None or (known.tree_size, known.root_hash.hex()) != (held.tree_size, held.root_hash):
        raise NotAnArchiveError(f"the log's shard {held.number} is another one")
    return Archive(held.number, "sha256:" + hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest())
