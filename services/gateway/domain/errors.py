"""The errors of JSON-RPC messages."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.errors import MeshError, Reason, Violation


def empty_batch() -> MeshError:
    """The batch has no entry."""
    return MeshError(Reason.INVALID_REQUEST, message="a batch needs at least one entry")


def batch_too_long(limit: int) -> MeshError:
    """The batch has more entries than allowed."""
    return MeshError(
        Reason.INVALID_REQUEST, message=f"a batch holds at most {limit} entries", metadata={"limit_entries": str(limit)}
    )


def too_many_calls(limit: int) -> MeshError:
    """The entries of one message ask for more calls than allowed; a group asks for as many as it holds."""
    return MeshError(
        Reason.INVALID_REQUEST,
        message=f"one request asks for at most {limit} calls, those of its groups included",
        metadata={"limit_calls": str(limit)},
    )


def not_a_request(violations: Sequence[Violation] = ()) -> MeshError:
    """The entry does not have the form of a JSON-RPC 2.0 request."""
    return MeshError(Reason.INVALID_REQUEST, message="not a JSON-RPC 2.0 request", violations=violations)


def unknown_method() -> MeshError:
    """No method has this name. The error does not repeat the name."""
    return MeshError(Reason.METHOD_NOT_FOUND)


def positional_params() -> MeshError:
    """The parameters are an array; only parameters by name are accepted."""
    violation = Violation("", "type", "parameters are given by name, as an object")
    return MeshError(Reason.INVALID_PARAMS, violations=[violation])


def wrong_params(violations: Sequence[Violation]) -> MeshError:
    """The parameters do not match the method's schema."""
    return MeshError(Reason.INVALID_PARAMS, violations=violations)


def interrupted() -> MeshError:
    """The process ends before the call does. The call may have run."""
    return MeshError(Reason.SERVICE_UNAVAILABLE, metadata={"outcome": "unknown"})
