"""The lifecycle state machine: every verb in every state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.semver import Version
from libs.common.tool_names import ToolName
from services.registry.domain.lifecycle.lifecycle import (
    TRANSITION_RULES,
    Verb,
    apply,
    is_applicable,
    next_states,
    starting_states,
)
from services.registry.domain.model import Deprecation, LifecycleState, Standing, VersionHead
from services.registry.domain.publishing.manifest import Manifest

S = LifecycleState
NOW = datetime(2026, 6, 1, tzinfo=UTC)

# The expected state after each verb, for a version that covers an available one. A state that is not listed refuses.
TABLE: dict[Verb, dict[LifecycleState, LifecycleState]] = {
    Verb.PUBLISH: {S.DRAFT: S.AVAILABLE},
    Verb.DEPRECATE: {S.AVAILABLE: S.DEPRECATED, S.DEFERRED: S.DEPRECATED, S.DEPRECATED: S.DEPRECATED},
    Verb.UNDEPRECATE: {S.DEPRECATED: S.AVAILABLE, S.SUNSET: S.AVAILABLE},
    Verb.SUNSET: {S.DEPRECATED: S.SUNSET},
    Verb.REMOVE: {S.DRAFT: S.RETIRED, S.SUNSET: S.RETIRED, S.QUARANTINED: S.RETIRED},
    Verb.EXTEND: {S.SUNSET: S.SUNSET},
    Verb.EXPIRE: {S.SUNSET: S.SUNSET},
    Verb.DISABLE: {
        S.AVAILABLE: S.DISABLED,
        S.DEFERRED: S.DISABLED,
        S.DEPRECATED: S.DISABLED,
        S.REQUIRES_SETUP: S.DISABLED,
    },
    Verb.ENABLE: {S.DISABLED: S.AVAILABLE},
    Verb.QUARANTINE: {
        S.DRAFT: S.QUARANTINED,
        S.AVAILABLE: S.QUARANTINED,
        S.DISABLED: S.QUARANTINED,
        S.REQUIRES_SETUP: S.QUARANTINED,
        S.DEFERRED: S.QUARANTINED,
        S.DEPRECATED: S.QUARANTINED,
        S.SUNSET: S.QUARANTINED,
    },
    Verb.RELEASE: {S.QUARANTINED: S.AVAILABLE},
    Verb.MARK_REQUIRES_SETUP: {
        S.AVAILABLE: S.REQUIRES_SETUP,
        S.DEFERRED: S.REQUIRES_SETUP,
        S.DEPRECATED: S.REQUIRES_SETUP,
    },
    Verb.COMPLETE_SETUP: {S.REQUIRES_SETUP: S.AVAILABLE},
    Verb.DEFER: {S.AVAILABLE: S.DEFERRED},
    Verb.LOAD: {S.DEFERRED: S.AVAILABLE},
}


def head(state: LifecycleState, *beneath: LifecycleState, sunset: datetime | None = None) -> VersionHead:
    deprecation = Deprecation(NOW, sunset) if sunset else None
    standing = Standing(state, NOW, 1, deprecation=deprecation, beneath=beneath)
    return VersionHead(ToolName("acme", "tool"), Version.parse("1.0.0"), "sha256:0", 1, NOW, "operator", standing)


def test_the_table_names_every_verb() -> None:
    assert set(TABLE) == set(Verb) == set(TRANSITION_RULES)


@pytest.mark.parametrize("verb", Verb)
def test_each_verb_follows_the_table_in_every_state(verb: Verb) -> None:
    for state in S:
        version = head(state, *([] if state is S.AVAILABLE else [S.AVAILABLE]))
        assert is_applicable(verb, version, NOW) is (state in TABLE[verb])
        if state in TABLE[verb]:
            assert apply(verb, version, NOW).state is TABLE[verb][state]
            continue
        with pytest.raises(MeshError) as caught:
            apply(verb, version, NOW)
        assert caught.value.reason is Reason.FAILED_PRECONDITION
        assert (caught.value.metadata["state"], caught.value.metadata["verb"]) == (state.value, verb.value)


@pytest.mark.parametrize(
    ("cover", "uncover", "covered"),
    [
        (Verb.DISABLE, Verb.ENABLE, [S.AVAILABLE, S.DEFERRED, S.DEPRECATED, S.REQUIRES_SETUP]),
        (
            Verb.QUARANTINE,
            Verb.RELEASE,
            [S.DRAFT, S.AVAILABLE, S.DISABLED, S.REQUIRES_SETUP, S.DEFERRED, S.DEPRECATED, S.SUNSET],
        ),
        (Verb.MARK_REQUIRES_SETUP, Verb.COMPLETE_SETUP, [S.AVAILABLE, S.DEFERRED, S.DEPRECATED]),
        (Verb.DEPRECATE, Verb.UNDEPRECATE, [S.AVAILABLE, S.DEFERRED]),
        (Verb.DEFER, Verb.LOAD, [S.AVAILABLE]),
    ],
)
def test_uncovering_restores_the_covered_state(cover: Verb, uncover: Verb, covered: list[LifecycleState]) -> None:
    for state in covered:
        states = next_states(cover, state, (S.AVAILABLE,))
        assert states[:-1] == (S.AVAILABLE, state)
        assert next_states(uncover, states[-1], states[:-1]) == (S.AVAILABLE, state)


def test_nothing_leads_out_of_retired() -> None:
    assert [verb for verb in Verb if next_states(verb, S.RETIRED, ())] == []


def test_only_these_verbs_make_a_version_callable_again() -> None:
    runs = {S.AVAILABLE, S.DEFERRED, S.DEPRECATED}
    back = {verb for verb in Verb for state in set(S) - runs if {*next_states(verb, state, (S.AVAILABLE,))[-1:]} & runs}
    assert back == {Verb.PUBLISH, Verb.UNDEPRECATE, Verb.ENABLE, Verb.RELEASE, Verb.COMPLETE_SETUP}


def test_three_covers_are_lifted_one_by_one() -> None:
    states = next_states(Verb.DEPRECATE, S.DEFERRED, ())
    states = next_states(Verb.DISABLE, states[-1], states[:-1])
    states = next_states(Verb.QUARANTINE, states[-1], states[:-1])
    seen = []
    for verb in (Verb.RELEASE, Verb.ENABLE, Verb.UNDEPRECATE):
        states = next_states(verb, states[-1], states[:-1])
        seen.append(states[-1])
    assert seen == [S.DISABLED, S.DEPRECATED, S.DEFERRED]


def test_a_passed_sunset_date_counts_before_the_sweep() -> None:
    ended = head(S.DEPRECATED, S.AVAILABLE, sunset=NOW + timedelta(seconds=1))
    assert apply(Verb.DISABLE, ended, NOW).state is S.DISABLED
    later = NOW + timedelta(seconds=1)
    with pytest.raises(MeshError):
        apply(Verb.DISABLE, ended, later)
    assert apply(Verb.REMOVE, ended, later).state is S.RETIRED
    assert apply(Verb.EXPIRE, ended, later).state is S.SUNSET
    assert apply(Verb.UNDEPRECATE, ended, later).state is S.AVAILABLE
    released = apply(Verb.QUARANTINE, ended, later)
    assert released.beneath == (S.AVAILABLE, S.SUNSET)


@pytest.mark.parametrize(
    ("availability", "draft", "expected"),
    [
        ({}, False, (S.AVAILABLE,)),
        ({"deferred": True}, False, (S.DEFERRED,)),
        ({"required_credentials": ["key"]}, False, (S.AVAILABLE, S.REQUIRES_SETUP)),
        ({"required_credentials": ["key"], "deferred": True}, True, (S.DEFERRED, S.REQUIRES_SETUP, S.DRAFT)),
        ({"required_credentials": []}, True, (S.AVAILABLE, S.DRAFT)),
    ],
)
def test_the_initial_states_of_a_version(
    availability: dict[str, object], draft: bool, expected: tuple[LifecycleState, ...]
) -> None:
    manifest = Manifest({"interface": {"availability": availability}})
    assert starting_states(manifest, draft=draft) == expected
