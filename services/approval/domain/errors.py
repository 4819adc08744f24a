"""The errors of tickets."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.errors import MeshError, Reason, Violation

# How long a caller waits before it asks again whether a ticket is approved.
POLL_SECONDS = 5.0


def ticket_not_found(name: str) -> MeshError:
    """No ticket has this name, or the caller may not see it."""
    return MeshError(Reason.NOT_FOUND, metadata={"name": name})


def request_id_taken(request_id: str) -> MeshError:
    """The request id already belongs to a ticket for another call."""
    return MeshError(
        Reason.ALREADY_EXISTS,
        message="this request id belongs to a ticket for another call",
        metadata={"request_id": request_id},
    )


def too_many_open(limit: int) -> MeshError:
    """The requester has too many open tickets."""
    metadata = {"limit": "open_tickets", "limit_tickets": str(limit)}
    return MeshError(Reason.RATE_LIMITED, metadata=metadata, retry_after=60.0)


def ticket_closed(state: str, verb: str) -> MeshError:
    """The ticket's state does not allow the transition."""
    return MeshError(Reason.TICKET_CLOSED, metadata={"state": state, "verb": verb})


def self_approval() -> MeshError:
    """The person requested the call, delegated it, or acts in it."""
    return MeshError(Reason.SELF_APPROVAL)


def not_eligible(why: str) -> MeshError:
    """The person may not decide. `why` is group, scope, delegated or break_glass."""
    return MeshError(Reason.APPROVER_NOT_ELIGIBLE, metadata={"lacks": why})


def reason_required() -> MeshError:
    """The policy requires a reason."""
    return invalid_request([Violation("reason", "required", "is required by the policy that asks for approval")])


def etag_mismatch(etag: str) -> MeshError:
    """The ticket changed after the person saw it."""
    return MeshError(Reason.ETAG_MISMATCH, metadata={"etag": etag})


def no_open_review() -> MeshError:
    """The ticket was not overridden, or its review is closed."""
    return MeshError(Reason.FAILED_PRECONDITION, message="no review of an override is open")


def still_pending(name: str) -> MeshError:
    """No decision was made yet."""
    metadata = {"ticket": name, "state": "pending"}
    return MeshError(Reason.APPROVAL_REQUIRED, metadata=metadata, retry_after=POLL_SECONDS)


def rejected(name: str, state: str) -> MeshError:
    """The ticket was denied, by a person or by time."""
    return MeshError(Reason.APPROVAL_REJECTED, metadata={"ticket": name, "state": state})


def not_redeemable(reason: Reason, name: str) -> MeshError:
    """The approval does not hold for this call."""
    return MeshError(reason, metadata={"ticket": name})


def link_used(name: str) -> MeshError:
    """The person has used the link before."""
    return MeshError(Reason.TICKET_LINK_USED, metadata={"ticket": name})


def link_expired(name: str) -> MeshError:
    """The link is too old."""
    return MeshError(Reason.TICKET_LINK_EXPIRED, metadata={"ticket": name})


def revocations_unknown() -> MeshError:
    """The revocations are not known at present, so no approval is used."""
    return MeshError(Reason.SERVICE_UNAVAILABLE, message="revocations are not known at present", retry_after=1.0)


def invalid_request(violations: Sequence[Violation]) -> MeshError:
    """The request breaks rules that the contract cannot express."""
    return MeshError(Reason.INVALID_REQUEST, violations=violations)
