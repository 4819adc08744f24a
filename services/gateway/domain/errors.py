"""What can be wrong with a message, each under the name of what happened."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.errors import MeshError, Reason, Violation


def empty_batch() -> MeshError:
    """A batch without an entry asks for nothing."""
    return MeshError(Reason.INVALID_REQUEST, message="a batch needs at least one entry")


def batch_too_long(limit: int) -> MeshError:
    """More entries than one body may hold."""
    return MeshError(
        Reason.INVALID_REQUEST, message=f"a batch holds at most {limit} entries", metadata={"limit_entries": str(limit)}
    )


def not_a_request(violations: Sequence[Violation] = ()) -> MeshError:
    """The entry does not have the form of a JSON-RPC 2.0 request."""
    return MeshError(Reason.INVALID_REQUEST, message="not a JSON-RPC 2.0 request", violations=violations)


def unknown_method() -> MeshError:
    """No method has this name. The name is the caller's own and is not repeated."""
    return MeshError(Reason.METHOD_NOT_FOUND)


def positional_params() -> MeshError:
    """Parameters came as an array; they are taken by name only."""
    violation = Violation("", "type", "parameters are given by name, as an object")
    return MeshError(Reason.INVALID_PARAMS, violations=[violation])


def wrong_params(violations: Sequence[Violation]) -> MeshError:
    """Parameters that the method's description does not allow."""
    return MeshError(Reason.INVALID_PARAMS, violations=violations)


def cut_off() -> MeshError:
    """The process ends before the call did. What was sent on may have run."""
    return MeshError(Reason.SERVICE_UNAVAILABLE, metadata={"outcome": "unknown"})


def deadline_malformed(highest_ms: int) -> MeshError:
    """The deadline header is not a number of milliseconds within bounds."""
    sentence = f"a whole number of milliseconds from 1 to {highest_ms}"
    return MeshError(Reason.INVALID_REQUEST, violations=[Violation("x-deadline-ms", "range", sentence)])
