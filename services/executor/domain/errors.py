"""What can go wrong with a call, each as one constructor named by what happened."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.auth.authority import Refusal
from libs.common.errors import MeshError, Reason, Violation
from services.executor.domain.model import Decision

# A caller reads the reasons of a denial; a page of them is no longer a reason.
_MAX_MESSAGE = 500


def tool_not_found(tool: str) -> MeshError:
    return MeshError(Reason.TOOL_NOT_FOUND, metadata={"tool": tool[:320]})


def version_not_found(tool: str, constraint: str) -> MeshError:
    return MeshError(Reason.TOOL_VERSION_NOT_FOUND, metadata={"tool": tool, "constraint": constraint[:128]})


def tool_past_sunset(version: str, successor: str) -> MeshError:
    metadata = {"tool_version": version} | ({"successor": successor} if successor else {})
    return MeshError(Reason.TOOL_DEPRECATED, metadata=metadata)


def tool_unavailable(version: str, state: str, why: str = "") -> MeshError:
    said = {"state_reason": why} if why else {}
    return MeshError(Reason.TOOL_UNAVAILABLE, metadata={"tool_version": version, "state": state, **said})


def catalog_stale() -> MeshError:
    return MeshError(Reason.SERVICE_UNAVAILABLE, message="the list of tools is out of date", retry_after=1.0)


def arguments_invalid(violations: Sequence[Violation]) -> MeshError:
    return MeshError(Reason.ARGUMENTS_INVALID, violations=violations)


def schema_not_loaded(version: str) -> MeshError:
    """The caller does not know the schema of a deferred tool; it learns how to load it."""
    return MeshError(
        Reason.SCHEMA_NOT_LOADED,
        metadata={
            "tool_version": version,
            "load_with": "toolmesh.registry.v1.DiscoveryService/GetToolSchemas",
            "selection_ref": version,
            "then_send": "tool_digest",
        },
    )


def version_changed(version: str) -> MeshError:
    """The caller pinned another content than would run."""
    return MeshError(Reason.ETAG_MISMATCH, metadata={"tool_version": version})


def key_required(tool: str) -> MeshError:
    return MeshError(Reason.IDEMPOTENCY_KEY_REQUIRED, metadata={"tool": tool})


def denied(decision: Decision) -> MeshError:
    """Policy said no; its own reason is what the caller gets."""
    metadata = {"decision": decision.name}
    for kind, value in decision.suggestions:
        metadata[f"needs_{kind}"] = f"{metadata.get(f'needs_{kind}', '')} {value}".strip()
    message = "; ".join(decision.reasons)[:_MAX_MESSAGE]
    return MeshError(decision.deny_reason, message=message, metadata=metadata)


def approval_required(decision: Decision) -> MeshError:
    metadata = {"decision": decision.name, "quorum": str(decision.quorum)}
    if decision.approver_groups:
        metadata["approver_groups"] = " ".join(decision.approver_groups)
    return MeshError(Reason.APPROVAL_REQUIRED, metadata=metadata)


def obligation_unmet(decision: Decision, kinds: Sequence[str]) -> MeshError:
    """Policy allowed the call on conditions that this executor cannot keep, so the call may not run."""
    metadata = {"decision": decision.name, "obligations": " ".join(kinds)}
    return MeshError(
        Reason.PERMISSION_DENIED, message="the decision binds the call to what cannot be done here", metadata=metadata
    )


def authority_exceeded(decision: Decision, refusal: Refusal) -> MeshError:
    """The token does not cover these arguments, whatever policy says about the call."""
    violations = [Violation(refusal.path, "authority.exceeded", refusal.message)] if refusal.path else []
    return MeshError(
        refusal.reason, message=refusal.message, violations=violations, metadata={"decision": decision.name}
    )


def resources_untold(most: int, longest: int) -> MeshError:
    """The arguments name more resources than policy can be told of."""
    message = f"name at most {most} resources of at most {longest} characters"
    return arguments_invalid([Violation("", "resources", message)])


def rate_limited(source: str, kind: str, retry_after: float) -> MeshError:
    """A bucket is full for now. `kind` says of what: calls, cost or concurrent."""
    return MeshError(Reason.RATE_LIMITED, metadata={"limit": source, "exceeded": kind}, retry_after=retry_after)


def budget_exhausted(source: str, kind: str) -> MeshError:
    """A token has spent what it may. `kind` says of what: calls, cost or running."""
    return MeshError(Reason.BUDGET_EXHAUSTED, metadata={"limit": source, "exceeded": kind})


def spending_uncounted() -> MeshError:
    """What the call spends cannot be counted now, so it may not run."""
    message = "what the call spends cannot be counted now"
    return MeshError(Reason.SERVICE_UNAVAILABLE, message=message, retry_after=1.0)


def deadline_exceeded() -> MeshError:
    return MeshError(Reason.DEADLINE_EXCEEDED)


def authority_revoked() -> MeshError:
    """The token was taken back while the call ran."""
    return MeshError(Reason.TOKEN_REVOKED)


def authority_ended() -> MeshError:
    return MeshError(Reason.TOKEN_EXPIRED)


def tool_timed_out(seconds: float) -> MeshError:
    return MeshError(Reason.TOOL_TIMEOUT, metadata={"limit_ms": str(round(seconds * 1000))})


def canceled() -> MeshError:
    return MeshError(Reason.INVOCATION_CANCELED)


def execution_failed(message: str) -> MeshError:
    return MeshError(Reason.EXECUTION_FAILED, message=message)


def result_invalid(violations: Sequence[Violation]) -> MeshError:
    return MeshError(Reason.RESULT_INVALID, violations=violations)


def result_too_large(size: int, limit: int) -> MeshError:
    return MeshError(Reason.RESULT_TOO_LARGE, metadata={"size_bytes": str(size), "limit_bytes": str(limit)})


def not_recorded() -> MeshError:
    """The log took no record before anything ran."""
    return MeshError(Reason.AUDIT_UNAVAILABLE, retry_after=1.0)


def result_withheld() -> MeshError:
    """The tool ran, and the log did not confirm its outcome: the result stays here."""
    message = "The tool ran, but its outcome could not be recorded, so the result is withheld."
    return MeshError(Reason.AUDIT_UNAVAILABLE, message=message, metadata={"tool_ran": "true"}, retry_after=1.0)


def log_behind() -> MeshError:
    return MeshError(Reason.AUDIT_BACKPRESSURE, retry_after=1.0)


def record_refused() -> MeshError:
    return MeshError(Reason.AUDIT_RECORD_INVALID)


def key_conflict() -> MeshError:
    return MeshError(Reason.IDEMPOTENCY_CONFLICT)


def outcome_unknown(invocation_id: str) -> MeshError:
    """An earlier call with the key may or may not have had its effect, and repeating it could double it."""
    return MeshError(Reason.UNKNOWN_OUTCOME, metadata={"first_invocation": invocation_id})


def unforeseen() -> MeshError:
    return MeshError(Reason.INTERNAL)
