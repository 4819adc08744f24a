"""Checks that archived and dropped shards are confirmed by records of the log.

The list of shards is not signed. Its claims about archives count only if a record of the log confirms them; otherwise
an attacker could delete a shard and list it as dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolmesh.audit.v1 import shard_pb2

from toolmesh_sdk.audit.format.log_events import Archival
from toolmesh_sdk.audit.remote import RemoteLog
from toolmesh_sdk.audit.verify.online.live_scan import LiveScan
from toolmesh_sdk.audit.verify.report import Finding, Kind

_UNRECORDED = "its records are missing, and no record of the log reports that they were dropped"
_UNCONFIRMED = "no record of the log confirms the archive of the shard"


def is_dropped(shard: shard_pb2.Shard) -> bool:
    """Return whether the log claims that only the archive holds the records of the shard."""
    return shard.state == shard_pb2.SHARD_STATE_DROPPED


def archive_findings(
    shards: Sequence[shard_pb2.Shard], scans: Sequence[tuple[int, LiveScan]]
) -> tuple[list[Finding], list[str]]:
    """Compare the states of the shards with the scanned records; return findings and remarks."""
    findings, remarks = [], []
    for shard in shards:
        if not is_dropped(shard) and not shard.manifest_digest:
            continue
        # A shard is archived after it was closed, so the record is in a later shard.
        recorded = {each for number, scan in scans if number > shard.number for each in scan.archived}
        own = {each for each in recorded if each.shard == shard.number}
        if any(_confirms(shard, each) for each in own):
            continue
        if not own and any(is_dropped(later) and later.number > shard.number for later in shards):
            remarks.append(f"the archive of shard {shard.number} may be recorded in a later archive; verify that, too")
        else:
            findings.append(_finding(shard))
    return findings, remarks


def ask_log_about_dropped(log: RemoteLog, shard: shard_pb2.Shard) -> tuple[list[Finding], list[str]]:
    """Ask the log to verify a dropped shard itself, for a verifier that samples records."""
    bad = log.verify_range(shard.first_sequence, shard.first_sequence + shard.tree_size)
    remark = f"only the log itself confirms that shard {shard.number} was dropped; verify without --sample"
    return ([_finding(shard)], []) if bad is not None else ([], [remark])


def _confirms(shard: shard_pb2.Shard, archival: Archival) -> bool:
    return archival.manifest_digest == shard.manifest_digest and (archival.records_dropped or not is_dropped(shard))


def _finding(shard: shard_pb2.Shard) -> Finding:
    if is_dropped(shard):
        return Finding(Kind.SHARD_MISSING, _UNRECORDED, shard=shard.number, sequence=shard.first_sequence)
    return Finding(Kind.MANIFEST, _UNCONFIRMED, shard=shard.number)
