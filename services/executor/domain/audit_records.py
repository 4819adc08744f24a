"""Builds the audit records of an invocation: its decision and its outcome."""

from __future__ import annotations

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from services.executor.domain.errors import ToolUnavailableError
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Event, PayloadDigest, Record, Status
from services.executor.domain.states import State

_EVENTS = {
    State.SUCCEEDED: Event.SUCCEEDED,
    State.CANCELED: Event.CANCELED,
    State.TIMED_OUT: Event.TIMED_OUT,
    State.VALIDATION_FAILED: Event.VALIDATION_FAILED,
    State.SCHEMA_PARSE_FAILED: Event.VALIDATION_FAILED,
}
_STATUSES = {State.SUCCEEDED: Status.SUCCESS, State.TIMED_OUT: Status.TIMEOUT}
_TERMINAL_STATES = {
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
    Reason.SANDBOX_NOT_READY: State.BLOCKED,
    # Where policy began to require approval while the call waited for its slot.
    Reason.APPROVAL_REQUIRED: State.DENIED,
    # Where an approval ended while the call waited for its slot.
    Reason.APPROVAL_REJECTED: State.DENIED,
    **{reason: State.DENIED for reason in Reason if reason.name.startswith("TICKET_")},
    Reason.SELF_APPROVAL: State.DENIED,
    # A call that already runs cannot be denied any more.
    Reason.TOKEN_REVOKED: State.CANCELED,
}


def decision_record(invocation: Invocation, refusal: MeshError | None = None) -> Record:
    """Return the record of the decision; with the refusal if the call ends there."""
    return Record(
        record_id=new_id(),
        event=Event.PERMISSION_DECIDED,
        time=invocation.clock.now(),
        invocation_id=invocation.invocation_id,
        request=invocation.request,
        tool=invocation.tool,
        previous_state=invocation.history.previous,
        state=invocation.state,
        status=Status.BEGUN if refusal is None else Status.ERROR,
        decision=invocation.decision,
        arguments=invocation.payload,
        reason=None if refusal is None else refusal.reason,
        latency=None if refusal is None else invocation.elapsed(),
        preview=invocation.preview,
        changes=invocation.changes,
        hooks=invocation.hooks,
        state_path="" if refusal is None else invocation.history.path,
        scanner=invocation.scanner,
        ticket=invocation.ticket,
    )


def transition_record(invocation: Invocation, event: Event, previous: State | None, state: State) -> Record:
    """Return the record of a change of state between the decision and the outcome."""
    return Record(
        record_id=new_id(),
        event=event,
        time=invocation.clock.now(),
        invocation_id=invocation.invocation_id,
        request=invocation.request,
        tool=invocation.tool,
        previous_state=previous,
        state=state,
        status=Status.BEGUN,
        decision=invocation.decision,
        arguments=invocation.payload,
        follows=invocation.decision_record,
        attempt=invocation.attempts,
        resumed_from=invocation.resumed_from,
        scanner=invocation.scanner,
    )


def outcome_record(invocation: Invocation, *, result: PayloadDigest | None = None, cancellation: str = "") -> Record:
    """Return the record of the outcome, for the state that the invocation is in.

    `cancellation` says how a tool that ran was stopped.
    """
    state, tool = invocation.state, invocation.tool
    undoable = tool is not None and state is State.SUCCEEDED and not invocation.preview
    return Record(
        record_id=new_id(),
        event=_EVENTS.get(state, Event.FAILED),
        time=invocation.clock.now(),
        invocation_id=invocation.invocation_id,
        request=invocation.request,
        tool=invocation.tool,
        unavailable=invocation.unavailable,
        previous_state=invocation.history.previous,
        state=state,
        status=_STATUSES.get(state, Status.ERROR),
        decision=invocation.decision,
        arguments=invocation.payload,
        result=result,
        reason=invocation.reason,
        # The start of a sandbox depends on the machine. It must not count against the tool's declared latency.
        latency=invocation.elapsed() - invocation.start_wait,
        follows=invocation.decision_record,
        replayed=invocation.replayed,
        sandbox=invocation.sandbox,
        attempt=invocation.attempts,
        preview=invocation.preview,
        changes=invocation.changes,
        hooks=invocation.hooks,
        state_path=invocation.history.path,
        effects=invocation.effects,
        foreseen=invocation.foreseen,
        violations=invocation.violations,
        undone_by=tool.compensation if undoable and tool is not None else "",
        refused_calls=invocation.refused_calls,
        costs=invocation.costs,
        ticket=invocation.ticket,
        cancellation=cancellation,
        resumed_from=invocation.resumed_from,
        scanner=invocation.scanner,
    )


def terminal_state(invocation: Invocation, error: MeshError) -> State:
    """Return the state that a failure ends in: the one of its reason if the transition table allows it, else FAILED."""
    state = _TERMINAL_STATES.get(error.reason, State.FAILED)
    candidates = [State.DENIED, state] if error.row.category == "AUTHORIZATION_DENIED" else [state]
    if isinstance(error, ToolUnavailableError):
        # A call that already runs cannot be blocked any more.
        candidates.append(State.CANCELED)
    return next((each for each in candidates if invocation.history.leads_to(each)), State.FAILED)
