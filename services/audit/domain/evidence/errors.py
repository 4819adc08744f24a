"""What can go wrong with evidence."""

from __future__ import annotations

from libs.common.errors import MeshError, Reason, Violation
from services.audit.domain.evidence.model import Shard

_UNKNOWN = {"shard_unknown", "hold_unknown", "payload_unknown"}
_TAKEN = {"hold_exists"}


def refused(condition: str) -> MeshError:
    """The log's own rules forbid the change; the condition is a word such as `legal_hold` or `retention`."""
    reason = Reason.NOT_FOUND if condition in _UNKNOWN else Reason.FAILED_PRECONDITION
    return MeshError(Reason.ALREADY_EXISTS if condition in _TAKEN else reason, metadata={"condition": condition})


def history_changed(shard: int, size: int) -> MeshError:
    """What is stored no longer has the root of a checkpoint that was signed, so nothing is signed any more."""
    return MeshError(
        Reason.FAILED_PRECONDITION,
        metadata={"condition": "history_changed", "shard": str(shard), "tree_size": str(size)},
    )


def records_dropped(shard: Shard) -> MeshError:
    """The records of this shard are in its archive only; the next ones begin behind it."""
    metadata = {"condition": "dropped", "shard": str(shard.number), "next_sequence": str(shard.end_sequence)}
    return MeshError(Reason.FAILED_PRECONDITION, metadata=metadata)


def size_out_of_range(size: int) -> MeshError:
    """The shard has never been of this size, or not yet."""
    return MeshError(Reason.FAILED_PRECONDITION, metadata={"condition": "tree_size", "reached": str(size)})


def checkpoint_not_found() -> MeshError:
    """No checkpoint of this shard has this size."""
    return MeshError(Reason.NOT_FOUND, metadata={"condition": "checkpoint_unknown"})


def cosignature_invalid(rule: str) -> MeshError:
    """The line is not the signature of a witness that this log knows."""
    violation = Violation(path="line", rule=rule, message="is not a co-signature of a known witness")
    return MeshError(Reason.INVALID_REQUEST, violations=[violation])


def range_empty() -> MeshError:
    """A hold covers no record."""
    violation = Violation(path="end_sequence", rule="range.not_empty", message="is not behind the first sequence")
    return MeshError(Reason.INVALID_REQUEST, violations=[violation])
