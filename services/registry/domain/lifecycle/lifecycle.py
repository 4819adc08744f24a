"""The lifecycle state machine: which verb leads from which state to which.

A version has a stack of states: a deprecated version that is disabled and then quarantined is released to disabled and
enabled to deprecated. A verb applies one of four operations to the stack:

- COVER pushes the verb's state.
- UNCOVER pops the current state.
- MOVE replaces the current state by the verb's state.
- KEEP leaves the stack and changes other attributes of the version.

A pair of verb and state that is not in the table is refused. Other preconditions of a verb (dates, usage) are checked
by its use case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, StrEnum

from services.registry.domain.catalog.resolve import effective_state
from services.registry.domain.errors import verb_not_applicable
from services.registry.domain.model import LifecycleState, Standing, VersionHead
from services.registry.domain.publishing.manifest import Manifest

S = LifecycleState


class Verb(StrEnum):
    """A lifecycle operation on a version."""

    PUBLISH = "publish"
    DEPRECATE = "deprecate"
    UNDEPRECATE = "undeprecate"
    SUNSET = "sunset"
    REMOVE = "remove"
    EXTEND = "extend"
    EXPIRE = "expire"
    DISABLE = "disable"
    ENABLE = "enable"
    QUARANTINE = "quarantine"
    RELEASE = "release"
    MARK_REQUIRES_SETUP = "mark_requires_setup"
    COMPLETE_SETUP = "complete_setup"
    DEFER = "defer"
    LOAD = "load"


class StateStackOperation(Enum):
    """The effect of a verb on the stack of states."""

    COVER = "cover"
    UNCOVER = "uncover"
    MOVE = "move"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class TransitionRule:
    """The operation of a verb, the states in which it applies, and its target state."""

    operation: StateStackOperation
    states: frozenset[LifecycleState]
    target: LifecycleState | None = None


def _rule(operation: StateStackOperation, *states: LifecycleState, to: LifecycleState | None = None) -> TransitionRule:
    return TransitionRule(operation, frozenset(states), to)


_RUNS = (S.AVAILABLE, S.DEFERRED, S.DEPRECATED)
TRANSITION_RULES: Mapping[Verb, TransitionRule] = {
    Verb.PUBLISH: _rule(StateStackOperation.UNCOVER, S.DRAFT),
    # Not from requires_setup: a deprecated version runs, and one that needs setup must not.
    Verb.DEPRECATE: _rule(StateStackOperation.COVER, *_RUNS, to=S.DEPRECATED),
    Verb.UNDEPRECATE: _rule(StateStackOperation.UNCOVER, S.DEPRECATED, S.SUNSET),
    Verb.SUNSET: _rule(StateStackOperation.MOVE, S.DEPRECATED, to=S.SUNSET),
    Verb.REMOVE: _rule(StateStackOperation.MOVE, S.DRAFT, S.SUNSET, S.QUARANTINED, to=S.RETIRED),
    Verb.EXTEND: _rule(StateStackOperation.KEEP, S.SUNSET),
    # Stores the sunset that readers already see, because its date has passed.
    Verb.EXPIRE: _rule(StateStackOperation.KEEP, S.SUNSET),
    Verb.DISABLE: _rule(StateStackOperation.COVER, *_RUNS, S.REQUIRES_SETUP, to=S.DISABLED),
    Verb.ENABLE: _rule(StateStackOperation.UNCOVER, S.DISABLED),
    # Everything that may run again can be quarantined, also a version past its sunset, which can be undeprecated.
    Verb.QUARANTINE: _rule(
        StateStackOperation.COVER, *_RUNS, S.DRAFT, S.DISABLED, S.REQUIRES_SETUP, S.SUNSET, to=S.QUARANTINED
    ),
    Verb.RELEASE: _rule(StateStackOperation.UNCOVER, S.QUARANTINED),
    Verb.MARK_REQUIRES_SETUP: _rule(StateStackOperation.COVER, *_RUNS, to=S.REQUIRES_SETUP),
    Verb.COMPLETE_SETUP: _rule(StateStackOperation.UNCOVER, S.REQUIRES_SETUP),
    Verb.DEFER: _rule(StateStackOperation.COVER, S.AVAILABLE, to=S.DEFERRED),
    Verb.LOAD: _rule(StateStackOperation.UNCOVER, S.DEFERRED),
}  # fmt: skip


def next_states(verb: Verb, state: LifecycleState, beneath: tuple[LifecycleState, ...]) -> tuple[LifecycleState, ...]:
    """Return the stack of states after a verb, the current one last; empty when the verb does not apply."""
    rule = TRANSITION_RULES[verb]
    if state not in rule.states:
        return ()
    if rule.operation is StateStackOperation.UNCOVER:
        return beneath or (S.AVAILABLE,)
    if rule.operation is StateStackOperation.MOVE and rule.target is not None:
        return (*beneath, rule.target)
    # A state does not cover itself: deprecating again only updates the deprecation.
    covers = rule.operation is StateStackOperation.COVER and rule.target is not None and state is not rule.target
    return (*beneath, state, rule.target) if covers and rule.target is not None else (*beneath, state)


def apply(verb: Verb, head: VersionHead, now: datetime) -> Standing:
    """Return the standing after the verb, with only the states changed. Raises FAILED_PRECONDITION.

    The effective state decides: a deprecated version past its date counts as sunset, even if that is not stored yet.
    """
    standing = head.standing
    states = next_states(verb, effective_state(head, now), standing.beneath)
    if not states:
        raise verb_not_applicable(head, verb, effective_state(head, now))
    return replace(standing, state=states[-1], beneath=states[:-1])


def is_applicable(verb: Verb, head: VersionHead, now: datetime) -> bool:
    """Return whether the verb applies to the version now."""
    return effective_state(head, now) in TRANSITION_RULES[verb].states


def starting_states(manifest: Manifest, *, draft: bool) -> tuple[LifecycleState, ...]:
    """Return the initial stack of states, the current one last. Setup and draft states cover the state that follows
    them."""
    availability = manifest.part("interface").get("availability", {})
    states = [S.DEFERRED if availability.get("deferred") else S.AVAILABLE]
    if availability.get("required_credentials"):
        states.append(S.REQUIRES_SETUP)
    if draft:
        states.append(S.DRAFT)
    return tuple(states)
