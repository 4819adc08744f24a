"""Errors of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from libs.common.errors import MeshError, Reason, Violation


def log_unavailable() -> MeshError:
    """The database did not confirm a commit. Nothing was acknowledged, so everything may be sent again."""
    return MeshError(Reason.AUDIT_UNAVAILABLE, retry_after=0.2)


def append_backpressure() -> MeshError:
    """The queue of uncommitted records is full."""
    return MeshError(Reason.AUDIT_BACKPRESSURE, retry_after=0.5)


def record_invalid(record_id: str, path: str, rule: str) -> MeshError:
    """A record has no canonical form. Names the record, the field and the violated rule, never the value."""
    violation = Violation(path=path, rule=rule, message="has no canonical form")
    return MeshError(Reason.AUDIT_RECORD_INVALID, violations=[violation], metadata={"record_id": record_id})


def record_not_found(name: str) -> MeshError:
    """The log has no record of this name."""
    return MeshError(Reason.NOT_FOUND, metadata={"name": name})


def page_token_invalid() -> MeshError:
    """The page token does not belong to this query."""
    return MeshError(Reason.PAGE_TOKEN_INVALID)


def time_out_of_range(path: str) -> MeshError:
    """A filter has a time outside the years 1 to 9999."""
    violation = Violation(path=path, rule="timestamp.range", message="is outside the years 1 to 9999")
    return MeshError(Reason.INVALID_REQUEST, violations=[violation])


def batch_kind_invalid() -> MeshError:
    """A batch contains either messages or canonical records, not both or neither."""
    violation = Violation(path="records", rule="batch.kind", message="must contain either records or canonical_records")
    return MeshError(Reason.INVALID_REQUEST, violations=[violation])


def batch_out_of_order(expected: int) -> MeshError:
    """The batches of a stream are numbered from 1 without gaps."""
    violation = Violation(path="batch", rule="batch.next", message="is not the next batch number")
    return MeshError(Reason.INVALID_REQUEST, violations=[violation], metadata={"expected": str(expected)})


def shutting_down() -> MeshError:
    """The process is shutting down; another replica or its successor continues the stream."""
    return MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=0.2)


class TakenIdsError(MeshError):
    """Other records have ids of this batch, in the log or earlier in the same commit. Treating these as repetitions
    would
    acknowledge records that are not stored. `positions` are the refused records of the batch."""

    def __init__(self, record_id: str, positions: Sequence[int]) -> None:
        violation = Violation(path="record_id", rule="record_id.taken", message="belongs to another record")
        super().__init__(Reason.AUDIT_RECORD_INVALID, violations=[violation], metadata={"record_id": record_id})
        self.positions = tuple(positions)


class RecordIdTakenError(Exception):
    """An entry has the id of a different record. Nothing was stored. `held_leaves` are leaf hashes in the log by record
    id."""

    def __init__(self, held_leaves: Mapping[str, bytes]) -> None:
        self.held_leaves = held_leaves
        super().__init__("a record id belongs to another record")


class SinkError(Exception):
    """The relay's sink did not acknowledge all events; it may have stored the first ones."""


class LeaseLostError(Exception):
    """This replica no longer holds the relay lease."""
