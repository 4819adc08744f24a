"""Records of what happened to an invocation: the decision before it runs, and how it ended."""

from __future__ import annotations

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Event, Payload, Record, Status
from services.executor.domain.states import State
from services.executor.domain.tool import Tool

_EVENTS = {
    State.SUCCEEDED: Event.SUCCEEDED,
    State.CANCELED: Event.CANCELED,
    State.TIMED_OUT: Event.TIMED_OUT,
    State.VALIDATION_FAILED: Event.VALIDATION_FAILED,
    State.SCHEMA_PARSE_FAILED: Event.VALIDATION_FAILED,
}
_STATUSES = {State.SUCCEEDED: Status.SUCCESS, State.TIMED_OUT: Status.TIMEOUT}
_ENDINGS = {
    Reason.TOOL_NOT_FOUND: State.BLOCKED,
    Reason.TOOL_VERSION_NOT_FOUND: State.BLOCKED,
    Reason.TOOL_DEPRECATED: State.BLOCKED,
    Reason.TOOL_UNAVAILABLE: State.BLOCKED,
    Reason.RATE_LIMITED: State.BLOCKED,
    Reason.BUDGET_EXHAUSTED: State.BLOCKED,
    Reason.INVALID_JSON: State.SCHEMA_PARSE_FAILED,
    Reason.PAYLOAD_TOO_LARGE: State.SCHEMA_PARSE_FAILED,
    Reason.INVALID_REQUEST: State.VALIDATION_FAILED,
    Reason.ARGUMENTS_INVALID: State.VALIDATION_FAILED,
    Reason.COERCION_FAILED: State.VALIDATION_FAILED,
    Reason.INJECTION_DETECTED: State.VALIDATION_FAILED,
    Reason.IDEMPOTENCY_KEY_REQUIRED: State.VALIDATION_FAILED,
    Reason.TOOL_TIMEOUT: State.TIMED_OUT,
    Reason.DEADLINE_EXCEEDED: State.TIMED_OUT,
    Reason.INVOCATION_CANCELED: State.CANCELED,
    Reason.SIBLING_CANCELED: State.CANCELED,
    Reason.HOOK_BLOCKED: State.BLOCKED,
    Reason.QUEUE_FULL: State.BLOCKED,
    # Where policy began to ask for a person while the call waited for its turn.
    Reason.APPROVAL_REQUIRED: State.DENIED,
    # Where it can no longer be denied, because it already runs.
    Reason.TOKEN_REVOKED: State.CANCELED,
}


def decision_record(invocation: Invocation, refusal: MeshError | None = None) -> Record:
    """Return the record of what policy answered; with the refusal if that is where the call ends."""
    return Record(
        record_id=new_id(),
        event=Event.PERMISSION_DECIDED,
        time=invocation.clock.now(),
        invocation_id=invocation.invocation_id,
        request=invocation.request,
        tool=invocation.tool,
        previous_state=invocation.track.previous,
        state=invocation.state,
        status=Status.BEGUN if refusal is None else Status.ERROR,
        decision=invocation.decision,
        arguments=invocation.asked,
        reason=None if refusal is None else refusal.reason,
        latency=None if refusal is None else invocation.elapsed(),
        preview=invocation.preview,
        changes=invocation.changes,
        hooks=invocation.hooks,
        state_path="" if refusal is None else invocation.track.path,
    )


def outcome_record(invocation: Invocation, *, result: Payload | None = None) -> Record:
    """Return the record of how an invocation ended, in the state that it is in."""
    state = invocation.state
    return Record(
        record_id=new_id(),
        event=_EVENTS.get(state, Event.FAILED),
        time=invocation.clock.now(),
        invocation_id=invocation.invocation_id,
        request=invocation.request,
        tool=invocation.tool,
        previous_state=invocation.track.previous,
        state=state,
        status=_STATUSES.get(state, Status.ERROR),
        decision=invocation.decision,
        arguments=invocation.asked,
        result=result,
        reason=invocation.reason,
        latency=invocation.elapsed(),
        follows=invocation.decision_record,
        replayed=invocation.replayed,
        sandbox=invocation.sandbox,
        attempt=invocation.attempts,
        preview=invocation.preview,
        changes=invocation.changes,
        hooks=invocation.hooks,
        state_path=invocation.track.path,
        effects=invocation.effects,
        violations=invocation.violations,
        undone_by=_undone_by(invocation, invocation.tool) if invocation.tool is not None else "",
        cost_micros=sum(micros for _, micros in invocation.costs) if invocation.costs else 0,
    )


def _undone_by(invocation: Invocation, tool: Tool) -> str:
    """The tool that takes back what was done, once something was."""
    done = tool.compensation and invocation.state is State.SUCCEEDED and not invocation.preview
    return tool.compensation if done else ""


def ending(invocation: Invocation, error: MeshError) -> State:
    """Return the state that a failure ends in: the one its reason names where the table leads there, else FAILED."""
    named = _ENDINGS.get(error.reason, State.FAILED)
    wanted = [State.DENIED, named] if error.row.category == "AUTHORIZATION_DENIED" else [named]
    return next((state for state in wanted if invocation.track.leads_to(state)), State.FAILED)
