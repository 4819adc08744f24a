"""Defines the twenty states of an invocation and the transitions between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """The state of an invocation."""

    PLANNED = "planned"
    SELECTED = "selected"
    SCHEMA_PARSE_FAILED = "schema_parse_failed"
    ARGUMENTS_READY = "arguments_ready"
    VALIDATION_FAILED = "validation_failed"
    PRE_HOOKS_RUNNING = "pre_hooks_running"
    AWAITING_APPROVAL = "awaiting_approval"
    APPROVED = "approved"
    DENIED = "denied"
    QUEUED = "queued"
    RUNNING = "running"
    NEEDS_INPUT = "needs_input"
    PARTIAL_RESULT = "partial_result"
    POST_HOOKS_RUNNING = "post_hooks_running"
    YIELDED = "yielded"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMED_OUT = "timed_out"
    BLOCKED = "blocked"


_S = State
# An invocation that has not ended may always fail, be canceled, or time out.
_ENDS = frozenset({_S.FAILED, _S.CANCELED, _S.TIMED_OUT})

TRANSITIONS: Mapping[State, frozenset[State]] = {
    # To DENIED: the token was revoked before a call of a group was started.
    _S.PLANNED: _ENDS | {_S.SELECTED, _S.BLOCKED, _S.VALIDATION_FAILED, _S.DENIED},
    _S.SELECTED: _ENDS | {_S.ARGUMENTS_READY, _S.SCHEMA_PARSE_FAILED, _S.VALIDATION_FAILED, _S.BLOCKED},
    _S.ARGUMENTS_READY: _ENDS | {_S.PRE_HOOKS_RUNNING, _S.AWAITING_APPROVAL, _S.APPROVED, _S.DENIED, _S.BLOCKED},
    # A hook may have changed the arguments, so they are validated again.
    _S.PRE_HOOKS_RUNNING: _ENDS | {_S.VALIDATION_FAILED, _S.AWAITING_APPROVAL, _S.APPROVED, _S.DENIED, _S.BLOCKED},
    _S.AWAITING_APPROVAL: _ENDS | {_S.APPROVED, _S.DENIED, _S.BLOCKED},
    # To SUCCEEDED or POST_HOOKS_RUNNING: a cached result is used. To DENIED or BLOCKED: token or tool was revoked
    # meanwhile.
    _S.APPROVED: _ENDS
    | {_S.QUEUED, _S.RUNNING, _S.POST_HOOKS_RUNNING, _S.SUCCEEDED, _S.DENIED, _S.BLOCKED, _S.VALIDATION_FAILED},
    _S.QUEUED: _ENDS | {_S.RUNNING, _S.YIELDED, _S.DENIED, _S.BLOCKED},
    _S.RUNNING: _ENDS | {_S.NEEDS_INPUT, _S.PARTIAL_RESULT, _S.POST_HOOKS_RUNNING, _S.YIELDED, _S.SUCCEEDED},
    _S.NEEDS_INPUT: _ENDS | {_S.RUNNING, _S.YIELDED},
    _S.PARTIAL_RESULT: _ENDS | {_S.RUNNING, _S.POST_HOOKS_RUNNING, _S.YIELDED, _S.SUCCEEDED},
    _S.POST_HOOKS_RUNNING: _ENDS | {_S.YIELDED, _S.SUCCEEDED},
    _S.YIELDED: _ENDS | {_S.RUNNING, _S.NEEDS_INPUT, _S.PARTIAL_RESULT, _S.POST_HOOKS_RUNNING, _S.SUCCEEDED},
    _S.SCHEMA_PARSE_FAILED: frozenset(),
    _S.VALIDATION_FAILED: frozenset(),
    _S.DENIED: frozenset(),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELED: frozenset(),
    _S.TIMED_OUT: frozenset(),
    _S.BLOCKED: frozenset(),
}
TERMINAL = frozenset(state for state, following in TRANSITIONS.items() if not following)


class IllegalTransitionError(Exception):
    """The transition table has no such transition. Always a defect of the mesh, never of a caller."""

    def __init__(self, current: State, requested: State) -> None:
        self.current, self.requested = current, requested
        super().__init__(f"{current} does not lead to {requested}")


class StateHistory:
    """The states of one invocation, in order. It begins PLANNED and follows the transition table."""

    __slots__ = ("_steps", "state")

    def __init__(self) -> None:
        self.state = State.PLANNED
        """The current state."""
        self._steps = [State.PLANNED]

    @property
    def previous(self) -> State | None:
        """The state before the current one; None at the beginning."""
        return self._steps[-2] if len(self._steps) > 1 else None

    @property
    def steps(self) -> tuple[State, ...]:
        """Every state so far, in order."""
        return tuple(self._steps)

    @property
    def path(self) -> str:
        """The names of the states so far, separated by spaces."""
        return " ".join(self._steps)

    def leads_to(self, state: State) -> bool:
        """Return whether the state can be entered now."""
        return state in TRANSITIONS[self.state]

    def enter(self, state: State) -> None:
        """Enter a state. Raises IllegalTransitionError, and changes nothing, if the table does not allow it."""
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransitionError(self.state, state)
        self._steps.append(state)
        self.state = state
