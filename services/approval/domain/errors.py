"""The errors of tickets."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.errors import MeshError, Reason, Violation


def ticket_not_found(name: str) -> MeshError:
    """No ticket has this name."""
    return MeshError(Reason.NOT_FOUND, metadata={"name": name})


def request_id_taken(request_id: str) -> MeshError:
    """The request id already belongs to a ticket for another call."""
    return MeshError(
        Reason.ALREADY_EXISTS,
        message="this request id belongs to a ticket for another call",
        metadata={"request_id": request_id},
    )


def wrong_state(state: str, verb: str) -> MeshError:
    """The ticket's state does not allow the transition."""
    return MeshError(
        Reason.FAILED_PRECONDITION,
        message=f"the transition {verb} is not allowed in state {state}",
        metadata={"state": state, "verb": verb},
    )


def invalid_request(violations: Sequence[Violation]) -> MeshError:
    """The request breaks rules that the contract cannot express."""
    return MeshError(Reason.INVALID_REQUEST, violations=violations)


def page_token_invalid() -> MeshError:
    """The page token is malformed or belongs to another query."""
    return MeshError(Reason.PAGE_TOKEN_INVALID)


def too_contended() -> MeshError:
    """Concurrent changes of the ticket won in every attempt."""
    return MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=0.1)
