"""Constructs the errors of a call, one function per cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from libs.common.auth.coverage import OTHER_SESSION, SESSION, Refusal
from libs.common.errors import MeshError, Reason, Violation
from services.executor.domain.model import Decision, Result
from services.executor.domain.tool import VersionIdentity

# Bounds the reasons of a denial in the message.
_MAX_MESSAGE = 500
# How long a caller waits before it asks again whether its ticket is approved.
_POLL_SECONDS = 5.0
NO_RUNNER = "no_runner"
"""The state of a tool that this executor lacks."""


class ToolUnavailableError(MeshError):
    """The version exists and may not run. Its call is recorded and counted under it."""

    def __init__(self, reason: Reason, version: VersionIdentity, metadata: Mapping[str, str]) -> None:
        super().__init__(reason, metadata={"tool_version": version.name, **metadata})
        self.version = version


def tool_not_found(tool: str) -> MeshError:
    return MeshError(Reason.TOOL_NOT_FOUND, metadata={"tool": tool[:320]})


def tool_not_granted(tool: str) -> MeshError:
    """The token does not name the tool, which may or may not exist: the error is the same for both."""
    return MeshError(Reason.TOOL_NOT_IN_TOKEN, metadata={"tool": tool[:320]})


def version_not_found(tool: str, constraint: str) -> MeshError:
    return MeshError(Reason.TOOL_VERSION_NOT_FOUND, metadata={"tool": tool, "constraint": constraint[:128]})


def tool_past_sunset(version: VersionIdentity, successor: str) -> ToolUnavailableError:
    return ToolUnavailableError(Reason.TOOL_DEPRECATED, version, {"successor": successor} if successor else {})


def tool_unavailable(
    version: VersionIdentity, state: str, why: str = "", *, successor: str = ""
) -> ToolUnavailableError:
    given = {"state": state, "state_reason": why, "successor": successor}
    metadata = {name: text for name, text in given.items() if text}
    return ToolUnavailableError(Reason.TOOL_UNAVAILABLE, version, metadata)


def nothing_runs_it(version: str, cause: str) -> MeshError:
    """The tool is registered, but this executor lacks its runner, pack, module, program or volume."""
    return MeshError(
        Reason.TOOL_UNAVAILABLE,
        message=f"This executor cannot run the tool: {cause}.",
        metadata={"tool_version": version, "state": NO_RUNNER, "state_reason": cause},
    )


def catalog_stale() -> MeshError:
    return MeshError(Reason.SERVICE_UNAVAILABLE, message="the list of tools is out of date", retry_after=1.0)


def arguments_invalid(violations: Sequence[Violation]) -> MeshError:
    return MeshError(Reason.ARGUMENTS_INVALID, violations=violations)


def schema_not_loaded(version: str) -> MeshError:
    """The caller did not load the schema of a deferred tool. The metadata says how to."""
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
    """The caller pinned another digest than that of the current version."""
    return MeshError(Reason.ETAG_MISMATCH, metadata={"tool_version": version})


def key_required(tool: str) -> MeshError:
    return MeshError(Reason.IDEMPOTENCY_KEY_REQUIRED, metadata={"tool": tool})


def denied(decision: Decision) -> MeshError:
    """Policy denied the call. The caller gets its reason."""
    metadata = {"decision": decision.name}
    for kind, value in decision.suggestions:
        metadata[f"needs_{kind}"] = f"{metadata.get(f'needs_{kind}', '')} {value}".strip()
    message = "; ".join(decision.reasons)[:_MAX_MESSAGE]
    violations = _beyond(decision.blocked_path, message)
    return MeshError(decision.deny_reason, message=message, violations=violations, metadata=metadata)


def approval_required(decision: Decision) -> MeshError:
    """A person must approve the call first."""
    metadata = {"decision": decision.name, "quorum": str(decision.quorum)}
    if decision.approver_groups:
        metadata["approver_groups"] = " ".join(decision.approver_groups)
    return MeshError(Reason.APPROVAL_REQUIRED, metadata=metadata)


def approval_requested(decision: Decision, ticket: str, state: str, expires: datetime) -> MeshError:
    """The call waits for the approval of its ticket; with it, the same call can be sent again."""
    required = approval_required(decision)
    required.metadata |= {
        "ticket": ticket,
        "state": state,
        "expire_time": expires.isoformat(),
        "poll_with": "toolmesh.approval.v1.ApprovalService/GetTicket",
    }
    required.retry_after = _POLL_SECONDS
    return required


def approval_rejected(by: str, message: str = "") -> MeshError:
    """An approval hook rejected the call before approval was requested."""
    return MeshError(Reason.APPROVAL_REJECTED, message=message[:_MAX_MESSAGE], metadata={"rejected_by": by})


def obligation_unmet(decision: Decision, kinds: Sequence[str]) -> MeshError:
    """Policy allowed the call with obligations that this executor cannot meet."""
    metadata = {"decision": decision.name, "obligations": " ".join(kinds)}
    return MeshError(
        Reason.PERMISSION_DENIED,
        message="the decision has obligations that this executor cannot meet",
        metadata=metadata,
    )


def preview_required(decision: Decision, tool: str) -> MeshError:
    """The call needs a preview of this very call, by this caller, that has not expired."""
    metadata = {"decision": decision.name, "preview_with": "toolmesh.executor.v1.ExecutorService/PreviewInvocation"}
    return MeshError(Reason.PREVIEW_REQUIRED, metadata={**metadata, "tool_version": tool})


def cannot_be_previewed(version: str) -> MeshError:
    message = "the tool does not support previews"
    return MeshError(Reason.FAILED_PRECONDITION, message=message, metadata={"tool_version": version})


def undeclared_effects(version: str, effects: int) -> MeshError:
    """The tool had undeclared side effects. They were rolled back, and the tool is quarantined."""
    return MeshError(Reason.SIDE_EFFECT_VIOLATION, metadata={"tool_version": version, "violations": str(effects)})


def authority_exceeded(decision: Decision, refusal: Refusal) -> MeshError:
    """The token does not cover these arguments."""
    violations = _beyond(refusal.path, refusal.message)
    return MeshError(
        refusal.reason, message=refusal.message, violations=violations, metadata={"decision": decision.name}
    )


def _beyond(path: str, message: str) -> list[Violation]:
    """Return the violation of the argument that the token does not cover, if any."""
    return [Violation(path, "authority.exceeded", message)] if path else []


def other_session() -> MeshError:
    """The token is bound to a session, and the call names another."""
    return MeshError(Reason.AUTHORITY_EXCEEDED, message=OTHER_SESSION, violations=_beyond(SESSION, OTHER_SESSION))


def too_many_resources(most: int, longest: int) -> MeshError:
    """The arguments name more resources than a policy check can carry."""
    message = f"name at most {most} resources of at most {longest} characters"
    return arguments_invalid([Violation("", "resources", message)])


def rate_limited(source: str, kind: str, retry_after: float) -> MeshError:
    """A bucket is full for now. `kind` is calls, cost or concurrent."""
    return MeshError(Reason.RATE_LIMITED, metadata={"limit": source, "exceeded": kind}, retry_after=retry_after)


def too_many_calls(limit: str, most: int) -> MeshError:
    """The subject or tenant has too many calls under way."""
    metadata = {"limit": limit, "exceeded": "concurrent", "limit_calls": str(most)}
    return MeshError(Reason.RATE_LIMITED, metadata=metadata, retry_after=1.0)


def budget_exhausted(source: str, kind: str) -> MeshError:
    """The budget of a token is exhausted. `kind` is calls, cost or running."""
    return MeshError(Reason.BUDGET_EXHAUSTED, metadata={"limit": source, "exceeded": kind})


def budget_unavailable() -> MeshError:
    """The budget of the call cannot be counted now, so it must not run."""
    message = "the budget of the call cannot be counted now"
    return MeshError(Reason.SERVICE_UNAVAILABLE, message=message, retry_after=1.0)


def deadline_exceeded() -> MeshError:
    return MeshError(Reason.DEADLINE_EXCEEDED)


def authority_revoked() -> MeshError:
    """The token was revoked while the call ran."""
    return MeshError(Reason.TOKEN_REVOKED)


def authority_ended() -> MeshError:
    return MeshError(Reason.TOKEN_EXPIRED)


def tool_timed_out(seconds: float) -> MeshError:
    return MeshError(Reason.TOOL_TIMEOUT, metadata={"limit_ms": str(round(seconds * 1000))})


def canceled(how: str = "") -> MeshError:
    """`how` says how a tool that ran was stopped: `cooperative`, `terminated`, `killed`, or `not_supported`.

    `grace_over` is that of a runner that did not stop its tool in time.
    """
    return MeshError(Reason.INVOCATION_CANCELED, metadata={"cancellation": how} if how else {})


def input_unavailable() -> MeshError:
    message = "The tool asks its caller for input and got none. Start the call as a job, and answer its question."
    return MeshError(Reason.FAILED_PRECONDITION, message=message)


def execution_failed(message: str, metadata: Mapping[str, str] | None = None) -> MeshError:
    return MeshError(Reason.EXECUTION_FAILED, message=message, metadata=metadata)


def result_invalid(violations: Sequence[Violation]) -> MeshError:
    return MeshError(Reason.RESULT_INVALID, violations=violations)


def result_too_large(size: int, limit: int) -> MeshError:
    return MeshError(Reason.RESULT_TOO_LARGE, metadata={"size_bytes": str(size), "limit_bytes": str(limit)})


def not_recorded() -> MeshError:
    """The log did not confirm a record before the run."""
    return MeshError(Reason.AUDIT_UNAVAILABLE, retry_after=1.0)


def result_withheld() -> MeshError:
    """The tool ran, but the log did not confirm its outcome, so the result is withheld."""
    message = "The tool ran, but its outcome could not be recorded, so the result is withheld."
    return MeshError(Reason.AUDIT_UNAVAILABLE, message=message, metadata={"tool_ran": "true"}, retry_after=1.0)


def log_behind() -> MeshError:
    return MeshError(Reason.AUDIT_BACKPRESSURE, retry_after=1.0)


def record_refused() -> MeshError:
    return MeshError(Reason.AUDIT_RECORD_INVALID)


def unexpected() -> MeshError:
    return MeshError(Reason.INTERNAL)


def network_forbidden(host: str, port: int, why: str) -> MeshError:
    """A tool tried to reach a destination outside its network policy. The host is as the tool wrote it."""
    return MeshError(Reason.NETWORK_POLICY_VIOLATION, metadata={"host": host, "port": str(port), "refused": why})


def traffic_exceeded(host: str) -> MeshError:
    """A tool exceeded the network traffic of one call, with this host."""
    return MeshError(Reason.RESOURCE_LIMIT_EXCEEDED, metadata={"limit": "traffic", "host": host})


def sandbox_missing(sandbox: str, why: str) -> MeshError:
    """The sandbox that the tool requires is not available. It never runs in a weaker one."""
    return MeshError(Reason.SANDBOX_UNAVAILABLE, message=why, metadata={"sandbox": sandbox})


def limits_not_kept(sandbox: str, limits: Sequence[str]) -> MeshError:
    """The manifest sets limits that the sandbox does not keep on this machine."""
    return MeshError(
        Reason.SANDBOX_UNAVAILABLE,
        message=f"the sandbox {sandbox} does not keep {' and '.join(limits)} on this machine",
        metadata={"sandbox": sandbox, "limit": ",".join(limits)},
    )


def queue_full(tool: str, retry_after: float) -> MeshError:
    """The queue is full."""
    return MeshError(Reason.QUEUE_FULL, metadata={"tool": tool}, retry_after=retry_after)


def sibling_failed(place: int, failure: MeshError) -> MeshError:
    """Another call of the group failed, so this one was canceled or not started. `place` is the sibling's index."""
    return MeshError(Reason.SIBLING_CANCELED, metadata={"sibling": str(place), "sibling_reason": failure.reason.name})


def no_room_in_group(result: Result, size: int, limit: int) -> MeshError:
    """The call succeeded, but the results of the group do not fit into one response."""
    return MeshError(
        Reason.RESULT_TOO_LARGE,
        metadata={"size_bytes": str(size), "limit_bytes": str(limit), "tool_ran": "true"},
        invocation_id=result.invocation_id,
        evidence=result.evidence,
    )


def group_invalid(violations: Sequence[Violation]) -> MeshError:
    """The dependencies of a group have a cycle or an unknown index."""
    return MeshError(Reason.INVALID_REQUEST, violations=violations)


def hook_blocked(hook: str, cause: str, message: str = "") -> MeshError:
    """A hook stopped the call, or failed and must not. `cause` says which: `stopped`, `denied`, `timeout`, ..."""
    return MeshError(Reason.HOOK_BLOCKED, message=message[:_MAX_MESSAGE], metadata={"hook": hook, "cause": cause})


def coercion_failed(violations: Sequence[Violation]) -> MeshError:
    """An argument looks like its declared type, but the conversion would be lossy."""
    return MeshError(Reason.COERCION_FAILED, violations=violations)


def injection_detected(violations: Sequence[Violation]) -> MeshError:
    """A path, URL or command among the arguments violates its policy."""
    return MeshError(Reason.INJECTION_DETECTED, violations=violations)


def sanitization_failed() -> MeshError:
    """A required redaction could not be completed, so the result is withheld."""
    return MeshError(Reason.SANITIZATION_FAILED)


def result_not_stored(size: int, limit: int, why: str) -> MeshError:
    """The result is too large, and not stored. `why` is opt_out, circular, cap or unavailable."""
    metadata = {"size_bytes": str(size), "limit_bytes": str(limit), "not_stored": why}
    return MeshError(Reason.RESULT_TOO_LARGE, metadata=metadata)


def stored_result_not_found() -> MeshError:
    """The result does not exist, expired, or belongs to another caller: the error does not say which."""
    return MeshError(Reason.NOT_FOUND)


def offset_beyond(size: int) -> MeshError:
    """The offset is beyond the end of the stored result."""
    return MeshError(Reason.INVALID_REQUEST, violations=[Violation("offset", "range", f"is beyond {size} bytes")])


def secret_store_unavailable(name: str) -> MeshError:
    """The store of credentials does not answer. Nothing was sent."""
    return MeshError(Reason.SECRET_STORE_UNAVAILABLE, metadata={"secret": name, "effect": "none"}, retry_after=1.0)


def credential_not_found(name: str) -> MeshError:
    """There is no such credential, for this tenant or for all."""
    return MeshError(Reason.CREDENTIAL_NOT_FOUND, metadata={"secret": name, "effect": "none"})


def credential_not_bound(name: str, unbound: str) -> MeshError:
    """The credential may not be used there: `unbound` is the host or the namespace that it does not name."""
    message = "The credential exists, but it may not be used by this tool or sent to this host."
    metadata = {"secret": name, "not_bound_to": unbound, "effect": "none"}
    return MeshError(Reason.CREDENTIAL_NOT_FOUND, message=message, metadata=metadata)


def credential_expired(name: str) -> MeshError:
    return MeshError(Reason.CREDENTIAL_EXPIRED, metadata={"secret": name, "effect": "none"})


def credential_refused(name: str, status: int) -> MeshError:
    """The service does not accept the credential: it has expired there, or was replaced."""
    message = "The service refused the credential of the tool."
    metadata = {"secret": name, "http_status": str(status), "effect": "none"}
    return MeshError(Reason.CREDENTIAL_EXPIRED, message=message, metadata=metadata)


def credential_not_granted(name: str) -> MeshError:
    """The authorization server grants the OAuth 2 client no token. Nothing was sent to the service."""
    message = "The authorization server refuses the credential of the tool."
    return MeshError(Reason.CREDENTIAL_EXPIRED, message=message, metadata={"secret": name, "effect": "none"})


def credential_needs_caller(name: str) -> MeshError:
    """The credential is a token of the caller, and this work is done for none."""
    message = "The credential is exchanged for each caller, and this work has none."
    return MeshError(Reason.CREDENTIAL_NOT_FOUND, message=message, metadata={"secret": name, "effect": "none"})


def credential_unreadable(name: str) -> MeshError:
    return MeshError(Reason.CREDENTIAL_UNREADABLE, metadata={"secret": name, "effect": "none"})


def circuit_open(origin: str, retry_after: float) -> MeshError:
    """A service failed repeatedly and is left alone for now. Nothing was sent."""
    metadata = {"service": origin, "effect": "none"}
    return MeshError(Reason.CIRCUIT_OPEN, metadata=metadata, retry_after=retry_after)


def held_back(origin: str, wait: float, *, limited: bool) -> MeshError:
    """A call that was not sent, because the service limits our rate or its circuit is open."""
    return external_rate_limited(origin, wait) if limited else circuit_open(origin, wait)


def external_unavailable(origin: str, cause: str, effect: str) -> MeshError:
    """A service cannot be reached, broke off, or answered that it cannot serve. `effect` is none or unknown."""
    return MeshError(Reason.EXTERNAL_UNAVAILABLE, metadata={"service": origin, "cause": cause, "effect": effect})


def external_timeout(origin: str, effect: str) -> MeshError:
    """A service did not answer before the end of the call's time."""
    return MeshError(Reason.EXTERNAL_TIMEOUT, metadata={"service": origin, "effect": effect})


def external_rate_limited(origin: str, retry_after: float | None) -> MeshError:
    """A service limits our rate. It did not serve the request."""
    metadata = {"service": origin, "effect": "none"}
    return MeshError(Reason.EXTERNAL_RATE_LIMITED, metadata=metadata, retry_after=retry_after)


def external_refused(origin: str, status: int) -> MeshError:
    """A service refused the request: its answer is the outcome. Its text is in the log of the tool."""
    message = f"The service answered with status {status}; the log of the tool has its text."
    return MeshError(Reason.EXECUTION_FAILED, message=message, metadata={"service": origin, "http_status": str(status)})


def external_answer_invalid(problem: str) -> MeshError:
    """A service answered with success, and not with a result."""
    return result_invalid([Violation("", "http", problem)])
