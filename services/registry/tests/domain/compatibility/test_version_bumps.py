"""Release lines, neighbouring releases and bumps."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from libs.common.semver import Constraint, Version
from libs.common.tool_names import ToolName
from services.registry.domain.compatibility.version_bumps import (
    Bump,
    allowed_bump,
    bump_version,
    line_of,
    next_release,
    previous_release,
)
from services.registry.domain.model import LifecycleState, Standing, VersionHead

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def heads(*numbers: str, state: LifecycleState = LifecycleState.AVAILABLE) -> list[VersionHead]:
    tool = ToolName("acme", "find_order")
    standing = Standing(state, NOW, 1)
    return [VersionHead(tool, Version.parse(n), f"sha256:{n}", 1, NOW, "operator", standing) for n in numbers]


@pytest.mark.parametrize(
    ("version", "below", "above"),
    [
        ("1.1.0", "1.0.1", "1.2.0"),
        ("1.3.0", "1.2.0", None),
        ("0.9.9", None, None),
        ("2.0.0", None, "2.0.1"),
        ("3.0.0", None, None),
        ("0.2.1", "0.2.0", "0.2.3"),
        ("0.3.1", None, None),
        ("0.0.2", None, None),
        ("1.1.0-rc.1", None, None),
    ],
)
def test_neighbours_are_those_of_the_line(version: str, below: str | None, above: str | None) -> None:
    everyone = heads("0.0.1", "0.0.3", "0.2.0", "0.2.3", "1.0.0", "1.0.1", "1.2.0", "1.2.1-rc.1", "2.0.1")
    found = [
        each and str(each.version)
        for each in (f(Version.parse(version), everyone) for f in (previous_release, next_release))
    ]
    assert found == [below, above]


@pytest.mark.parametrize("state", list(LifecycleState))
def test_a_version_counts_in_every_state(state: LifecycleState) -> None:
    assert previous_release(Version(1, 1, 0), heads("1.0.0", state=state)) is not None


@pytest.mark.parametrize(
    ("old", "new", "bump"),
    [
        ("1.0.0", "1.0.9", Bump.PATCH),
        ("1.0.0", "1.1.0", Bump.MINOR),
        ("1.9.0", "2.0.0", Bump.MAJOR),
        ("0.2.0", "0.2.1", Bump.MINOR),
        ("0.2.9", "0.3.0", Bump.MAJOR),
        ("0.0.1", "0.0.2", Bump.MAJOR),
        ("0.9.0", "1.0.0", Bump.MAJOR),
    ],
)
def test_how_far_a_step_goes(old: str, new: str, bump: Bump) -> None:
    assert allowed_bump(Version.parse(old), Version.parse(new)) is bump


@pytest.mark.parametrize("number", ["1.2.3", "0.2.3", "0.0.3", "1.2.3-rc.1"])
@pytest.mark.parametrize("bump", list(Bump))
def test_the_smallest_version_is_legal_and_higher(number: str, bump: Bump) -> None:
    old = Version.parse(number)
    new = bump_version(old, bump)
    assert old < new
    assert allowed_bump(old, new) >= bump


@pytest.mark.parametrize("number", ["1.2.3", "0.2.3", "0.0.3"])
def test_a_line_is_what_a_caret_follows(number: str) -> None:
    start = Version.parse(number)
    caret = Constraint.parse(f"^{number}")
    others = [Version(a, b, c) for a in range(4) for b in range(5) for c in range(6)]
    higher = [other for other in others if not other < start]
    assert [v for v in higher if caret.accepts(v)] == [v for v in higher if line_of(v) == line_of(start)]
