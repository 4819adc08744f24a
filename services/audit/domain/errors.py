"""What can go wrong with the log."""

from __future__ import annotations

from collections.abc import Mapping

from libs.common.errors import MeshError, Reason, Violation


def log_unavailable() -> MeshError:
    """The database did not take a commit. Nothing of it was acknowledged, so all of it may be sent again."""
    return MeshError(Reason.AUDIT_UNAVAILABLE, retry_after=0.2)


def log_behind() -> MeshError:
    """More is waiting to be committed than the process may hold."""
    return MeshError(Reason.AUDIT_BACKPRESSURE, retry_after=0.5)


def record_without_form(record_id: str, path: str, rule: str) -> MeshError:
    """A record cannot be written down canonically: which, where, and the rule that it breaks. Never the value."""
    violation = Violation(path=path, rule=rule, message="has no canonical form")
    return MeshError(Reason.AUDIT_RECORD_INVALID, violations=[violation], metadata={"record_id": record_id})


def record_id_taken(record_id: str) -> MeshError:
    """Another record has this id already, in the log or before it in the same commit. Absorbing this one as a repetition would
    confirm evidence that is nowhere."""
    violation = Violation(path="record_id", rule="record_id.taken", message="belongs to another record")
    return MeshError(Reason.AUDIT_RECORD_INVALID, violations=[violation], metadata={"record_id": record_id})


def record_not_found(name: str) -> MeshError:
    """The log holds no record of this name."""
    return MeshError(Reason.NOT_FOUND, metadata={"name": name})


def page_token_invalid() -> MeshError:
    """The token does not continue this query."""
    return MeshError(Reason.PAGE_TOKEN_INVALID)


def time_out_of_range(path: str) -> MeshError:
    """A filter names a moment outside the years 1 to 9999."""
    violation = Violation(path=path, rule="timestamp.range", message="is outside the years 1 to 9999")
    return MeshError(Reason.INVALID_REQUEST, violations=[violation])


def batch_of_one_kind() -> MeshError:
    """A batch brings its records either as messages or in their canonical form."""
    violation = Violation(path="records", rule="batch.kind", message="needs records or canonical_records, and not both")
    return MeshError(Reason.INVALID_REQUEST, violations=[violation])


def batch_out_of_turn(expected: int) -> MeshError:
    """A stream's batches are counted from 1 without gaps."""
    violation = Violation(path="batch", rule="batch.next", message="is not the number after that of the last batch")
    return MeshError(Reason.INVALID_REQUEST, violations=[violation], metadata={"expected": str(expected)})


def process_ending() -> MeshError:
    """The process is about to end; another replica, or its successor, continues the stream."""
    return MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=0.2)


class TakenError(Exception):
    """Entries have the id of another record. Nothing was stored; `held` are leaf hashes that the log holds, by record id."""

    def __init__(self, held: Mapping[str, bytes]) -> None:
        self.held = held
        super().__init__("a record id belongs to another record")


class SinkError(Exception):
    """The relay's sink did not acknowledge what it was told; it may have taken a part of it."""


class SeatLostError(Exception):
    """Another replica may relay now."""
