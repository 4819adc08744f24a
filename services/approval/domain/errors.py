"""What can go wrong with tickets, each under the name of what happened."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.errors import MeshError, Reason, Violation


def ticket_not_found(name: str) -> MeshError:
    """No ticket has this name."""
    return MeshError(Reason.NOT_FOUND, metadata={"name": name})


def request_id_taken(request_id: str) -> MeshError:
    """The request id already opened a ticket about another call."""
    return MeshError(
        Reason.ALREADY_EXISTS,
        message="this request id belongs to a ticket about another call",
        metadata={"request_id": request_id},
    )


def wrong_state(state: str, verb: str) -> MeshError:
    """The ticket is in a state from which the verb leads nowhere."""
    return MeshError(
        Reason.FAILED_PRECONDITION,
        message=f"a ticket that is {state} cannot be moved by {verb}",
        metadata={"state": state, "verb": verb},
    )


def unusable_request(violations: Sequence[Violation]) -> MeshError:
    """The request breaks rules that its schema cannot express."""
    return MeshError(Reason.INVALID_REQUEST, violations=violations)


def page_token_invalid() -> MeshError:
    """The token was not made by this query."""
    return MeshError(Reason.PAGE_TOKEN_INVALID)


def too_contended() -> MeshError:
    """Others kept changing the ticket first."""
    return MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=0.1)
