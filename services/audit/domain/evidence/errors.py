"""Errors of evidence and retention."""

from __future__ import annotations

from libs.common.errors import MeshError, Reason, Violation
from services.audit.domain.evidence.model import Shard

_UNKNOWN = {"shard_unknown", "hold_unknown", "payload_unknown"}
_TAKEN = {"hold_exists"}


def condition_error(condition: str) -> MeshError:
    """A rule of the log forbids the change, or its object does not exist. `condition` is a word such as `legal_hold` or
    `retention`."""
    reason = Reason.NOT_FOUND if condition in _UNKNOWN else Reason.FAILED_PRECONDITION
    return MeshError(Reason.ALREADY_EXISTS if condition in _TAKEN else reason, metadata={"condition": condition})


def history_changed(shard: int, size: int) -> MeshError:
    """The stored records no longer have the root of a signed checkpoint, so nothing more is signed."""
    return MeshError(
        Reason.FAILED_PRECONDITION,
        metadata={"condition": "history_changed", "shard": str(shard), "tree_size": str(size)},
    )


def records_dropped(shard: Shard) -> MeshError:
    """The records of this shard are only in its archive; the following ones begin after it."""
    metadata = {"condition": "dropped", "shard": str(shard.number), "next_sequence": str(shard.end_sequence)}
    return MeshError(Reason.FAILED_PRECONDITION, metadata=metadata)


def size_out_of_range(size: int) -> MeshError:
    """The shard never had this size."""
    return MeshError(Reason.FAILED_PRECONDITION, metadata={"condition": "tree_size", "reached": str(size)})


def checkpoint_not_found() -> MeshError:
    """The shard has no checkpoint of this size."""
    return MeshError(Reason.NOT_FOUND, metadata={"condition": "checkpoint_unknown"})


def cosignature_invalid(rule: str) -> MeshError:
    """The line is not a signature of a known witness."""
    violation = Violation(path="line", rule=rule, message="is not a co-signature of a known witness")
    return MeshError(Reason.INVALID_REQUEST, violations=[violation])


def range_empty() -> MeshError:
    """A hold covers no record."""
    violation = Violation(
        path="end_sequence", rule="range.not_empty", message="must be greater than the first sequence"
    )
    return MeshError(Reason.INVALID_REQUEST, violations=[violation])
