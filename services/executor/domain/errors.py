"""What can go wrong with a call, each as one constructor named by what happened."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.auth.authority import OTHER_SESSION, SESSION, Refusal
from libs.common.errors import MeshError, Reason, Violation
from services.executor.domain.model import Decision, Result

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


def nothing_runs_it(version: str) -> MeshError:
    """The tool is registered, and what it names is not at this executor: most often nobody named its pack's folder."""
    why = (
        "no such pack here (or no such module, program or volume): name the folder that holds the pack in"
        " TOOLMESH_TOOL_PACKS, a volume in TOOLMESH_VOLUMES, and restart the executor"
    )
    return MeshError(
        Reason.TOOL_UNAVAILABLE,
        message="This executor lacks what the tool runs from.",
        metadata={"tool_version": version, "state": "no_runner", "state_reason": why},
    )


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
    violations = _beyond(decision.blocked_path, message)
    return MeshError(decision.deny_reason, message=message, violations=violations, metadata=metadata)


def approval_required(decision: Decision) -> MeshError:
    metadata = {"decision": decision.name, "quorum": str(decision.quorum)}
    if decision.approver_groups:
        metadata["approver_groups"] = " ".join(decision.approver_groups)
    return MeshError(Reason.APPROVAL_REQUIRED, metadata=metadata)


def approval_rejected(by: str, message: str = "") -> MeshError:
    """Whoever speaks for the approvers rejected the call before a person was asked."""
    return MeshError(Reason.APPROVAL_REJECTED, message=message[:_MAX_MESSAGE], metadata={"rejected_by": by})


def obligation_unmet(decision: Decision, kinds: Sequence[str]) -> MeshError:
    """Policy allowed the call on conditions that this executor cannot keep, so the call may not run."""
    metadata = {"decision": decision.name, "obligations": " ".join(kinds)}
    return MeshError(
        Reason.PERMISSION_DENIED, message="the decision binds the call to what cannot be done here", metadata=metadata
    )


def preview_required(decision: Decision, tool: str) -> MeshError:
    """The call is allowed once it was previewed, and it was not: not this one, not lately, or not by this caller."""
    metadata = {"decision": decision.name, "preview_with": "toolmesh.executor.v1.ExecutorService/PreviewInvocation"}
    return MeshError(Reason.PREVIEW_REQUIRED, metadata={**metadata, "tool_version": tool})


def cannot_be_previewed(version: str) -> MeshError:
    message = "the tool cannot say what it would do"
    return MeshError(Reason.FAILED_PRECONDITION, message=message, metadata={"tool_version": version})


def word_broken(version: str, effects: int) -> MeshError:
    """The tool changed what it does not declare. Nothing of it was kept, and it is out of use."""
    return MeshError(Reason.SIDE_EFFECT_VIOLATION, metadata={"tool_version": version, "violations": str(effects)})


def authority_exceeded(decision: Decision, refusal: Refusal) -> MeshError:
    """The token does not cover these arguments, whatever policy says about the call."""
    violations = _beyond(refusal.path, refusal.message)
    return MeshError(
        refusal.reason, message=refusal.message, violations=violations, metadata={"decision": decision.name}
    )


def _beyond(path: str, message: str) -> list[Violation]:
    """Name the argument that the token does not cover, where it is one."""
    return [Violation(path, "authority.exceeded", message)] if path else []


def other_session() -> MeshError:
    """The token is bound to a session, and the call names another."""
    return MeshError(Reason.AUTHORITY_EXCEEDED, message=OTHER_SESSION, violations=_beyond(SESSION, OTHER_SESSION))


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


def unexpected() -> MeshError:
    return MeshError(Reason.INTERNAL)


def network_forbidden(host: str, port: int, why: str) -> MeshError:
    """A tool wanted to reach what its policy does not name; the host is the tool's own word for it."""
    return MeshError(Reason.NETWORK_POLICY_VIOLATION, metadata={"host": host, "port": str(port), "refused": why})


def traffic_exceeded(host: str) -> MeshError:
    """A tool moved more bytes over the network than one call may; the host is the one it was busy with."""
    return MeshError(Reason.RESOURCE_LIMIT_EXCEEDED, metadata={"limit": "traffic", "host": host})


def sandbox_missing(sandbox: str, why: str) -> MeshError:
    """The sandbox that a tool demands cannot be had here. It never runs in a weaker one."""
    return MeshError(Reason.SANDBOX_UNAVAILABLE, message=why, metadata={"sandbox": sandbox})


# What can go wrong in a sandbox beside how a process ends.


def tool_raised(kind: str) -> MeshError:
    """The tool's code raised what it did not foresee. Its type is told; its text is for the log alone."""
    message = "The tool's own code failed; the executor's log says how."
    return MeshError(Reason.EXECUTION_FAILED, message=message, metadata={"exception": kind} if kind else {})


def partly_done(message: str) -> MeshError:
    """The tool says that it did some of what it was asked, and not the rest."""
    return MeshError(Reason.PARTIAL_FAILURE, message=message)


def partly_kept(kept: int, of: int, cause: str) -> MeshError:
    """Only so many of a run's changes could be made real. `cause` is one word: changed (by somebody else meanwhile) or failed."""
    return MeshError(Reason.PARTIAL_FAILURE, metadata={"kept": str(kept), "changes": str(of), "cause": cause})


def stream_discarded(parts: int) -> MeshError:
    """The tool failed after it had produced so many parts; none of them is a result."""
    return MeshError(Reason.STREAM_DISCARDED, metadata={"parts": str(parts)})


def out_of_memory() -> MeshError:
    return MeshError(Reason.TOOL_OUT_OF_MEMORY)


def worker_lost() -> MeshError:
    """The process that should answer ended without a word, or said something that is no answer."""
    return MeshError(Reason.TOOL_CRASHED)


def volume_too_large(volume: str, limit: int) -> MeshError:
    """What the tool sees, or wrote, of a volume is more than its scratch space holds."""
    metadata = {"limit": "scratch", "volume": volume, "limit_bytes": str(limit)}
    return MeshError(Reason.RESOURCE_LIMIT_EXCEEDED, metadata=metadata)


def not_carried_over(volume: str) -> MeshError:
    """The tool left a link, a device or the like in a volume; nothing of the run is kept."""
    message = "the tool left something in a volume that is neither a file nor a folder"
    return MeshError(Reason.EXECUTION_FAILED, message=message, metadata={"volume": volume})


def preview_unknown() -> MeshError:
    """The tool reaches the network and has no function that says what it would do, so it cannot be previewed safely."""
    return MeshError(Reason.EXECUTION_FAILED, message="the tool cannot say what it would do")


def queue_full(tool: str, retry_after: float) -> MeshError:
    """As many calls wait already as may."""
    return MeshError(Reason.QUEUE_FULL, metadata={"tool": tool}, retry_after=retry_after)


def sibling_failed(place: int, failure: MeshError) -> MeshError:
    """Another call of the group failed, and this one was stopped for it, or never begun. `place` is the sibling's in the group."""
    return MeshError(Reason.SIBLING_CANCELED, metadata={"sibling": str(place), "sibling_reason": failure.reason.name})


def no_room_in_group(result: Result, size: int, limit: int) -> MeshError:
    """The call succeeded, but its result and those of its siblings do not fit into one answer."""
    return MeshError(
        Reason.RESULT_TOO_LARGE,
        metadata={"size_bytes": str(size), "limit_bytes": str(limit), "tool_ran": "true"},
        invocation_id=result.invocation_id,
        evidence=result.evidence,
    )


def group_invalid(violations: Sequence[Violation]) -> MeshError:
    """The calls of a group wait for one another, or for calls that are not there."""
    return MeshError(Reason.INVALID_REQUEST, violations=violations)


def hook_blocked(hook: str, cause: str, message: str = "") -> MeshError:
    """A hook stopped the call, or failed and the call may not go on without it. `cause` says which: `stopped`, `denied`, `timeout`, ..."""
    return MeshError(Reason.HOOK_BLOCKED, message=message[:_MAX_MESSAGE], metadata={"hook": hook, "cause": cause})


def coercion_failed(violations: Sequence[Violation]) -> MeshError:
    """What was sent looks like the declared type, and reading it as that would lose something."""
    return MeshError(Reason.COERCION_FAILED, violations=violations)


def injection_detected(violations: Sequence[Violation]) -> MeshError:
    """A path, URL or command among the arguments is not one that the tool may be given."""
    return MeshError(Reason.INJECTION_DETECTED, violations=violations)


def sanitization_failed() -> MeshError:
    """The decision demands a redaction that cannot be shown to be complete, so the result is withheld."""
    return MeshError(Reason.SANITIZATION_FAILED)


def result_not_stored(size: int, limit: int, why: str) -> MeshError:
    """The result is too large to be answered, and `why` says what keeps it from being stored: opt_out, circular, cap or unavailable."""
    metadata = {"size_bytes": str(size), "limit_bytes": str(limit), "not_stored": why}
    return MeshError(Reason.RESULT_TOO_LARGE, metadata=metadata)


def stored_result_not_found() -> MeshError:
    """There is none, it expired, or it is not for whoever asks: nobody learns which."""
    return MeshError(Reason.NOT_FOUND)


def offset_beyond(size: int) -> MeshError:
    """A stored result ends before the place that was asked for."""
    return MeshError(Reason.INVALID_REQUEST, violations=[Violation("offset", "range", f"is beyond {size} bytes")])


def claim_lost() -> MeshError:
    """Another executor has taken the key over, because this one fell silent. Asking again finds what becomes of it."""
    message = "another executor has taken the call over"
    return MeshError(Reason.SERVICE_UNAVAILABLE, message=message, retry_after=1.0)


def status_unavailable(tool: str) -> MeshError:
    """An earlier call with the key may have had its effect, and the tool that knows cannot be asked now."""
    message = "whether an earlier call had its effect cannot be found out now"
    return MeshError(Reason.SERVICE_UNAVAILABLE, message=message, metadata={"status_tool": tool}, retry_after=1.0)


def status_tool_writes(version: str) -> MeshError:
    """The tool that is to be asked for an outcome could change one, so it is not asked."""
    message = "a tool that changes something cannot say what happened"
    return MeshError(Reason.FAILED_PRECONDITION, message=message, metadata={"tool_version": version})


def sandbox_failed(why: str) -> MeshError:
    """No process could be confined as it must be, so none ran."""
    return MeshError(Reason.SANDBOX_UNAVAILABLE, metadata={"why": why})


def limit_reached(limit: str) -> MeshError:
    """The run went beyond what it may use. `limit` says of what: cpu, processes or file_size."""
    return MeshError(Reason.RESOURCE_LIMIT_EXCEEDED, metadata={"limit": limit})


def crashed(cause: str) -> MeshError:
    return MeshError(Reason.TOOL_CRASHED, metadata={"cause": cause})


def exited(code: int) -> MeshError:
    """The tool's process ended by itself and said that it failed."""
    message = "The tool's program ended in failure; the executor's log has what it wrote."
    return MeshError(Reason.EXECUTION_FAILED, message=message, metadata={"exit_code": str(code)})
