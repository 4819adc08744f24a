"""Constructs the errors of idempotency keys and of calls whose outcome is unknown."""

from __future__ import annotations

from libs.common.errors import MeshError, Reason

CLAIM_LOST = "claim_lost"
"""The state in the error of a call whose claim another executor took over."""


def key_conflict() -> MeshError:
    return MeshError(Reason.IDEMPOTENCY_CONFLICT)


def key_not_found() -> MeshError:
    """The key does not exist, expired, or belongs to another tenant: the error does not say which."""
    return MeshError(Reason.NOT_FOUND)


def key_not_settleable(key: str, state: str) -> MeshError:
    """The outcome of the key is known, or its call is under way."""
    message = "only a key whose outcome is unknown or unresolved can be settled"
    return MeshError(Reason.FAILED_PRECONDITION, message=message, metadata={"key": key, "state": state})


def key_not_stored() -> MeshError:
    """The store of idempotency keys does not answer, so the changes of the run are discarded."""
    return MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=1.0)


def claim_lost() -> MeshError:
    """Another executor took the claim over, because this one did not renew it. A retry finds the outcome."""
    message, metadata = "another executor has taken the call over", {"state": CLAIM_LOST}
    return MeshError(Reason.SERVICE_UNAVAILABLE, message=message, metadata=metadata, retry_after=1.0)


def owners_lost(key: str) -> MeshError:
    """Every executor that ran the call died. Nothing was changed; the call is not tried again."""
    metadata = {"cause": "executor_lost", "effect": "none", "key": key}
    return MeshError(Reason.TOOL_CRASHED, metadata=metadata, retryable=False)


def outcome_unknown(invocation_id: str, key: str) -> MeshError:
    """An earlier call with the key may or may not have had its effect, and repeating it could double it."""
    return MeshError(Reason.UNKNOWN_OUTCOME, metadata={"first_invocation": invocation_id, "key": key})


def volume_busy(volume: str) -> MeshError:
    """An earlier call may have changed the volume, which cannot be read now."""
    message = "the outcome of an earlier call cannot be determined now"
    return MeshError(Reason.SERVICE_UNAVAILABLE, message=message, metadata={"volume": volume}, retry_after=1.0)


def status_unavailable(tool: str) -> MeshError:
    """An earlier call may have had its effect, and the status tool is unavailable."""
    message = "the outcome of an earlier call cannot be determined now"
    return MeshError(Reason.SERVICE_UNAVAILABLE, message=message, metadata={"status_tool": tool}, retry_after=1.0)


def status_tool_writes(version: str) -> MeshError:
    """The status tool is not read-only, so it is not called."""
    message = "a status tool must be read-only"
    return MeshError(Reason.FAILED_PRECONDITION, message=message, metadata={"tool_version": version})
