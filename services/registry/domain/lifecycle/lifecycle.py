"""The one state machine: which verb leads from which state to which.

A version stands in one state, and that state may cover others: a deprecated version that is disabled and then
quarantined is released to disabled and enabled to deprecated. So a verb does one of four things to the state:

- COVER  puts its own state on top of the present one,
- UNCOVER takes the present state away; what was beneath it is the state again,
- MOVE   replaces the present state by the verb's own and leaves what is beneath,
- KEEP   changes something else about the version, not its state.

A pair of verb and state that is not in the table is refused. What else a verb needs (dates, usage) is not decided here.
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
    """What can be done to a version."""

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


class StackOperation(Enum):
    """What a verb does to the state."""

    COVER = "cover"
    UNCOVER = "uncover"
    MOVE = "move"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class TransitionRule:
    """What one verb does, where it may be done, and to which state it leads where that is its own."""

    operation: StackOperation
    states: frozenset[LifecycleState]
    target: LifecycleState | None = None


def _rule(operation: StackOperation, *states: LifecycleState, to: LifecycleState | None = None) -> TransitionRule:
    return TransitionRule(operation, frozenset(states), to)


_RUNS = (S.AVAILABLE, S.DEFERRED, S.DEPRECATED)
TRANSITION_RULES: Mapping[Verb, TransitionRule] = {
    Verb.PUBLISH: _rule(StackOperation.UNCOVER, S.DRAFT),
    # Not while it waits for setup: a deprecated version runs, and this one must not.
    Verb.DEPRECATE: _rule(StackOperation.COVER, *_RUNS, to=S.DEPRECATED),
    Verb.UNDEPRECATE: _rule(StackOperation.UNCOVER, S.DEPRECATED, S.SUNSET),
    Verb.SUNSET: _rule(StackOperation.MOVE, S.DEPRECATED, to=S.SUNSET),
    Verb.REMOVE: _rule(StackOperation.MOVE, S.DRAFT, S.SUNSET, S.QUARANTINED, to=S.RETIRED),
    Verb.EXTEND: _rule(StackOperation.KEEP, S.SUNSET),
    # The date has passed: what readers see already is written down.
    Verb.EXPIRE: _rule(StackOperation.KEEP, S.SUNSET),
    Verb.DISABLE: _rule(StackOperation.COVER, *_RUNS, S.REQUIRES_SETUP, to=S.DISABLED),
    Verb.ENABLE: _rule(StackOperation.UNCOVER, S.DISABLED),
    # Whatever can still come to run can be taken out of use, an ended version too: ending can be taken back.
    Verb.QUARANTINE: _rule(
        StackOperation.COVER, *_RUNS, S.DRAFT, S.DISABLED, S.REQUIRES_SETUP, S.SUNSET, to=S.QUARANTINED
    ),
    Verb.RELEASE: _rule(StackOperation.UNCOVER, S.QUARANTINED),
    Verb.MARK_REQUIRES_SETUP: _rule(StackOperation.COVER, *_RUNS, to=S.REQUIRES_SETUP),
    Verb.COMPLETE_SETUP: _rule(StackOperation.UNCOVER, S.REQUIRES_SETUP),
    Verb.DEFER: _rule(StackOperation.COVER, S.AVAILABLE, to=S.DEFERRED),
    Verb.LOAD: _rule(StackOperation.UNCOVER, S.DEFERRED),
}  # fmt: skip


def next_states(verb: Verb, state: LifecycleState, beneath: tuple[LifecycleState, ...]) -> tuple[LifecycleState, ...]:
    """Return the states after a verb, the present one last; empty when the verb cannot be done in this state."""
    rule = TRANSITION_RULES[verb]
    if state not in rule.states:
        return ()
    if rule.operation is StackOperation.UNCOVER:
        return beneath or (S.AVAILABLE,)
    if rule.operation is StackOperation.MOVE and rule.target is not None:
        return (*beneath, rule.target)
    # A state does not cover itself: to deprecate again only revises what was announced.
    covers = rule.operation is StackOperation.COVER and rule.target is not None and state is not rule.target
    return (*beneath, state, rule.target) if covers and rule.target is not None else (*beneath, state)


def apply(verb: Verb, head: VersionHead, now: datetime) -> Standing:
    """Return where the version stands after the verb, everything but its states as before. Raises FAILED_PRECONDITION.

    The state as of now decides: a deprecated version past its date has ended, whether or not that was marked.
    """
    standing = head.standing
    states = next_states(verb, effective_state(head, now), standing.beneath)
    if not states:
        raise verb_not_applicable(head, verb, effective_state(head, now))
    return replace(standing, state=states[-1], beneath=states[:-1])


def is_applicable(verb: Verb, head: VersionHead, now: datetime) -> bool:
    """Say whether the verb can be done to the version now."""
    return effective_state(head, now) in TRANSITION_RULES[verb].states


def starting_states(manifest: Manifest, *, draft: bool) -> tuple[LifecycleState, ...]:
    """Return where a new version stands, the present state last: what its manifest says must hold before it can be
    offered covers what it is once that holds."""
    availability = manifest.part("interface").get("availability", {})
    states = [S.DEFERRED if availability.get("deferred") else S.AVAILABLE]
    if availability.get("required_credentials"):
        states.append(S.REQUIRES_SETUP)
    if draft:
        states.append(S.DRAFT)
    return tuple(states)
