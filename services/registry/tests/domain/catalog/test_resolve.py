"""Version resolution for every lifecycle state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.semver import Version
from libs.common.tool_names import ToolName
from services.registry.domain.catalog.resolve import latest, latest_for_new_work, resolve
from services.registry.domain.model import Deprecation, LifecycleState, Standing, VersionHead

NOW = datetime(2026, 6, 1, tzinfo=UTC)
TOOL = ToolName("acme", "find_order")
S = LifecycleState

# The preference of each state.
FIRST, SECOND = 1, 2
WORTH: dict[LifecycleState, int | Reason] = {
    S.DRAFT: Reason.TOOL_UNAVAILABLE,
    S.AVAILABLE: FIRST,
    S.DISABLED: Reason.TOOL_UNAVAILABLE,
    S.REQUIRES_SETUP: Reason.TOOL_UNAVAILABLE,
    S.DEFERRED: FIRST,
    S.DEPRECATED: SECOND,
    S.SUNSET: Reason.TOOL_DEPRECATED,
    S.RETIRED: Reason.TOOL_DEPRECATED,
    S.QUARANTINED: Reason.TOOL_UNAVAILABLE,
}


def head(version: str, state: LifecycleState = S.AVAILABLE, deprecation: Deprecation | None = None) -> VersionHead:
    standing = Standing(state, NOW, 1, "because", deprecation)
    return VersionHead(TOOL, Version.parse(version), "sha256:0", 1, NOW, "operator", standing)


def outcome(heads: Sequence[VersionHead], constraint: str) -> str | Reason:
    try:
        return str(resolve(TOOL, heads, constraint, NOW).version)
    except MeshError as error:
        return error.reason


def expected(states: dict[str, LifecycleState]) -> str | Reason:
    """An independent implementation: the best preference wins, then the highest version."""
    for worth in (FIRST, SECOND):
        fit = [version for version, state in states.items() if WORTH[state] == worth]
        if fit:
            return max(fit)
    reason = WORTH[states[max(states)]]
    assert isinstance(reason, Reason)
    return reason


def test_every_state_is_covered() -> None:
    assert set(WORTH) == set(LifecycleState)
    assert len(LifecycleState) == 9


@pytest.mark.parametrize("constraint", ["", "latest", "^1.0", "~1.0", "1.x", ">=1 <2", "1.0.0"])
@pytest.mark.parametrize("state", list(LifecycleState))
def test_one_version_in_each_state(state: LifecycleState, constraint: str) -> None:
    worth = WORTH[state]
    assert outcome([head("1.0.0", state)], constraint) == ("1.0.0" if worth in (FIRST, SECOND) else worth)


@pytest.mark.parametrize("lowest", list(LifecycleState))
def test_three_versions_in_every_combination_of_states(lowest: LifecycleState) -> None:
    for middle, highest in product(LifecycleState, repeat=2):
        states = {"1.0.0": lowest, "1.1.0": middle, "1.2.0": highest}
        heads = [head(version, state) for version, state in states.items()]
        wanted = expected(states)
        assert outcome(heads, "^1.0") == wanted
        assert outcome(list(reversed(heads)), "") == wanted
        found = latest(heads, NOW)
        assert (str(found.version) if found else None) == (None if isinstance(wanted, Reason) else wanted)


def test_versions_are_ordered_as_numbers() -> None:
    assert outcome([head("1.9.0"), head("1.10.0"), head("0.99.0")], "latest") == "1.10.0"


def test_a_constraint_that_nothing_satisfies() -> None:
    assert outcome([head("1.0.0"), head("3.0.0")], "^2") is Reason.TOOL_VERSION_NOT_FOUND
    assert outcome([], "") is Reason.TOOL_VERSION_NOT_FOUND


def test_a_constraint_that_is_none() -> None:
    assert outcome([head("1.0.0")], "newest please") is Reason.INVALID_REQUEST
    assert outcome([head("1.0.0")], "^1+build") is Reason.INVALID_REQUEST


def test_a_pre_release_is_found_only_by_its_exact_number() -> None:
    heads = [head("1.0.0"), head("2.0.0-rc.1")]
    assert outcome(heads, "") == "1.0.0"
    assert outcome(heads, ">=1") == "1.0.0"
    assert outcome(heads, "2.0.0-rc.1") == "2.0.0-rc.1"
    assert outcome([head("2.0.0-rc.1")], "latest") is Reason.TOOL_VERSION_NOT_FOUND
    assert latest_for_new_work([head("2.0.0-rc.1")]) is None


def test_who_names_a_build_means_that_build() -> None:
    heads = [head("1.0.0+linux")]
    assert outcome(heads, "1.0.0") == "1.0.0+linux"
    assert outcome(heads, "1.0.0+linux") == "1.0.0+linux"
    assert outcome(heads, "1.0.0+other") is Reason.TOOL_VERSION_NOT_FOUND
    assert outcome(heads, "1.0.0+linux || ^2") == "1.0.0+linux"
    assert outcome(heads, "1.0.0+other || ^2") is Reason.TOOL_VERSION_NOT_FOUND
    assert outcome([*heads, head("2.1.0+any")], "1.0.0+other || ^2") == "2.1.0+any"


def test_a_deprecated_version_ends_at_its_sunset_also_before_anyone_marks_it() -> None:
    def deprecated(sunset: datetime | None) -> list[VersionHead]:
        return [
            head("1.0.0", S.DEPRECATED, Deprecation(NOW - timedelta(days=9), sunset, "tools/acme.b/versions/2.0.0"))
        ]

    assert outcome(deprecated(NOW + timedelta(seconds=1)), "") == "1.0.0"
    assert outcome(deprecated(None), "") == "1.0.0"
    assert outcome(deprecated(NOW), "") is Reason.TOOL_DEPRECATED
    with pytest.raises(MeshError) as caught:
        resolve(TOOL, deprecated(NOW), "", NOW)
    assert caught.value.metadata["successor"] == "tools/acme.b/versions/2.0.0"


def test_what_may_not_run_says_in_which_state_it_is() -> None:
    with pytest.raises(MeshError) as caught:
        resolve(TOOL, [head("1.0.0", S.QUARANTINED)], "", NOW)
    assert caught.value.metadata["state"] == "quarantined"
    assert caught.value.metadata["state_reason"] == "because"


@pytest.mark.parametrize("state", list(LifecycleState))
def test_only_what_may_be_chosen_for_new_work_is_the_latest_version(state: LifecycleState) -> None:
    found = latest_for_new_work([head("1.0.0", state)])
    assert (found is not None) is (WORTH[state] == FIRST)


def test_a_quarantined_version_does_not_make_another_major_the_latest() -> None:
    heads = [head("1.4.0", LifecycleState.AVAILABLE), head("2.0.0", LifecycleState.QUARANTINED)]
    assert outcome(heads, "") is outcome(heads, ">=1") is Reason.TOOL_UNAVAILABLE
    assert latest(heads, NOW) is None
    assert outcome(heads, "^1") == "1.4.0"
    assert outcome([*heads, head("2.1.0", LifecycleState.AVAILABLE)], "") == "2.1.0"
    assert outcome([*heads, head("3.0.0", LifecycleState.DISABLED)], "") is Reason.TOOL_UNAVAILABLE
    assert outcome([heads[0], head("2.0.0", LifecycleState.DISABLED)], "") == "1.4.0"
