"""Whether the log itself says of a shard that it has an archive, or that its records were dropped.

The list of shards is a table that nobody signs. What it says about archives is believed only where a record of the log says
the same; otherwise whoever deletes a shard would just have to call it dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolmesh.audit.v1 import shard_pb2

from toolmesh_sdk.audit.format.log_events import Archival
from toolmesh_sdk.audit.remote import RemoteLog
from toolmesh_sdk.audit.verify.live_scan import LiveScan
from toolmesh_sdk.audit.verify.report import Finding, Kind

_UNRECORDED = "its records are gone and no record of the log says that they were dropped"
_NEVER_NOTED = "no record of the log notes the archive that the shard is said to have"


def is_dropped(shard: shard_pb2.Shard) -> bool:
    """Say whether the log claims that only the archive holds the shard's records."""
    return shard.state == shard_pb2.SHARD_STATE_DROPPED


def archive_findings(
    shards: Sequence[shard_pb2.Shard], scans: Sequence[tuple[int, LiveScan]]
) -> tuple[list[Finding], list[str]]:
    """Compare what the shards are said to be with all records that were walked over; return findings and remarks."""
    findings, remarks = [], []
    for shard in shards:
        if not is_dropped(shard) and not shard.manifest_digest:
            continue
        # A shard is archived after it was closed, so whatever says so is in a later one.
        noted = {each for number, scan in scans if number > shard.number for each in scan.archived}
        own = {each for each in noted if each.shard == shard.number}
        if any(_fits(shard, each) for each in own):
            continue
        if not own and any(is_dropped(later) and later.number > shard.number for later in shards):
            remarks.append(
                f"what says that shard {shard.number} was archived may be in a later archive; verify those, too"
            )
        else:
            findings.append(_finding(shard))
    return findings, remarks


def ask_log_about_dropped(log: RemoteLog, shard: shard_pb2.Shard) -> tuple[list[Finding], list[str]]:
    """Ask the log whether it knows why a shard was dropped, for a verifier who does not look at every record."""
    bad = log.verify_range(shard.first_sequence, shard.first_sequence + shard.tree_size)
    remark = f"that shard {shard.number} was dropped by the rules is the log's own word; verify without --sample"
    return ([_finding(shard)], []) if bad is not None else ([], [remark])


def _fits(shard: shard_pb2.Shard, noted: Archival) -> bool:
    return noted.manifest_digest == shard.manifest_digest and (noted.records_dropped or not is_dropped(shard))


def _finding(shard: shard_pb2.Shard) -> Finding:
    if is_dropped(shard):
        return Finding(Kind.SHARD_MISSING, _UNRECORDED, shard=shard.number, sequence=shard.first_sequence)
    return Finding(Kind.MANIFEST, _NEVER_NOTED, shard=shard.number)
