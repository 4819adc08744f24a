"""Decides what a failed call changed: nothing, or it is unknown."""

from __future__ import annotations

from enum import StrEnum

from libs.common.errors import MeshError, Reason
from services.executor.domain.invocation import Invocation
from services.executor.domain.tool import Mutation, UncertainOutcome

# After a run that failed for one of these reasons, it is unknown whether the tool had its effect.
_UNCERTAIN = frozenset(
    {
        Reason.TOOL_TIMEOUT,
        Reason.DEADLINE_EXCEEDED,
        Reason.TOKEN_EXPIRED,
        Reason.TOKEN_REVOKED,
        Reason.INVOCATION_CANCELED,
        Reason.SIBLING_CANCELED,
        Reason.TOOL_CRASHED,
        Reason.TOOL_OUT_OF_MEMORY,
        Reason.RESOURCE_LIMIT_EXCEEDED,
        Reason.NETWORK_POLICY_VIOLATION,
        Reason.STREAM_DISCARDED,
        Reason.PARTIAL_FAILURE,
        Reason.EXTERNAL_TIMEOUT,
        Reason.BUDGET_EXHAUSTED,
        Reason.INTERNAL,
        # The run was stopped because its claim was lost, or was about to be.
        Reason.SERVICE_UNAVAILABLE,
    }
)


class FailureEffect(StrEnum):
    """The effect of a failed call."""

    NONE = "none"
    """Nothing was changed."""
    UNKNOWN = "unknown"
    """The effect may have happened."""
    DECIDED = "decided"
    """The tool itself reported the failure, and its report is the outcome."""


def effect_of_failure(invocation: Invocation, error: MeshError, *, held: bool = True) -> FailureEffect:
    """Return what a failed call changed. `held` is False if another call may hold its claim."""
    tool = invocation.tool
    if not invocation.attempts or invocation.preview or tool is None or tool.mutation is Mutation.READ_ONLY:
        return FailureEffect.NONE
    known = error.metadata.get("effect")
    if held and known == FailureEffect.NONE:
        # The runner knows that nothing reached the service.
        return FailureEffect.NONE
    if held and error.reason not in _UNCERTAIN and known != FailureEffect.UNKNOWN:
        return FailureEffect.DECIDED
    if tool.volumes_only and (not invocation.committing or _applied_nothing(error)):
        return FailureEffect.NONE
    return FailureEffect.UNKNOWN


def describe_effect(invocation: Invocation, error: MeshError) -> None:
    """State in the error whether the tool ran and what it changed. It is retryable only if a retry is safe."""
    if error.reason is Reason.DEADLINE_EXCEEDED:
        error.metadata.setdefault("tool_ran", "true" if invocation.attempts else "false")
    tool, effect = invocation.tool, effect_of_failure(invocation, error)
    if (
        not invocation.attempts
        or tool is None
        or tool.mutation is Mutation.READ_ONLY
        or effect is FailureEffect.DECIDED
    ):
        return
    error.metadata["effect"] = effect
    if effect is FailureEffect.UNKNOWN and not _retry_resolves(invocation):
        error.retryable = False


def _applied_nothing(error: MeshError) -> bool:
    return error.reason is Reason.PARTIAL_FAILURE and error.metadata.get("kept") == "0"


def _retry_resolves(invocation: Invocation) -> bool:
    """Return whether a retry has one effect: the tool may be repeated, or the key finds out what happened."""
    tool = invocation.tool
    if tool is None or tool.repeatable:
        return True
    asks = tool.uncertain is UncertainOutcome.QUERY_STATUS
    return invocation.prepared or (asks and bool(invocation.request.idempotency_key))
