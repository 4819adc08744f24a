"""Resolution equals a reference implementation of SemVer ranges over random versions and constraints.

The reference is `semantic_version.NpmSpec`. One difference is intended: our ranges never accept a pre-release, whereas
npm accepts one if a bound with a pre-release tag has the same numbers. Our ranges have no such bounds; a pre-release
must be named exactly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semantic_version import NpmSpec  # type: ignore[import-untyped]
from semantic_version import Version as Reference

from libs.common.errors import MeshError, Reason
from libs.common.semver import Constraint, Version
from libs.common.tool_names import ToolName
from services.registry.domain.catalog.resolve import resolve
from services.registry.domain.model import Deprecation, LifecycleState, Standing, VersionHead

NOW = datetime(2026, 6, 1, tzinfo=UTC)
TOOL = ToolName("acme", "find_order")
_TAGGED = re.compile(r"\d+\.\d+\.\d+-[0-9a-z.]+")
# Small numbers collide often; 10 sorts before 9 as text.
numbers = st.sampled_from([0, 1, 2, 3, 9, 10])
tags = st.sampled_from(["alpha", "alpha.1", "beta", "beta.2", "beta.11", "rc.1", "0", "1.x"])
releases = st.builds("{}.{}.{}".format, numbers, numbers, numbers)
versions = releases | st.builds("{}-{}".format, releases, tags)


@st.composite
def partials(draw: st.DrawFn) -> str:
    given_numbers = draw(st.lists(numbers, min_size=1, max_size=3))
    parts = [str(n) for n in given_numbers]
    if len(parts) < 3 and draw(st.booleans()):
        parts.append(draw(st.sampled_from(["x", "X", "*"])))
    return ".".join(parts)


terms = st.builds("{}{}".format, st.sampled_from(["", "^", "~", ">", ">=", "<", "<=", "="]), partials())
hyphens = st.builds("{} - {}".format, partials(), partials())
conjunctions = st.lists(terms, min_size=1, max_size=3).map(" ".join) | hyphens | versions
constraints = st.lists(conjunctions, min_size=1, max_size=3).map(" || ".join)


def accepted_by_reference(constraint: str, version: str) -> bool:
    """Return npm's answer with the intended difference applied.

    An exact pre-release means itself, as in npm; the reference also reads `1.0.0-rc.1` as `1.0.0`, which
    `test_the_reference_reads_an_exact_pre_release_too_widely` shows.
    """
    candidate = Reference(version)
    return any(_accepts(part.strip(), candidate) for part in constraint.split("||"))


def _accepts(part: str, candidate: Reference) -> bool:
    if _TAGGED.fullmatch(part):
        return bool(Reference(part) == candidate)
    return not candidate.prerelease and bool(NpmSpec(part).match(candidate))


def test_the_reference_reads_an_exact_pre_release_too_widely() -> None:
    assert NpmSpec("1.0.0-rc.1").match(Reference("1.0.0"))
    assert not Constraint.parse("1.0.0-rc.1").accepts(Version.parse("1.0.0"))


@settings(max_examples=300, deadline=None)
@given(constraints, st.lists(versions, max_size=12, unique=True))
def test_a_constraint_accepts_what_the_reference_accepts(constraint: str, found: list[str]) -> None:
    ours = Constraint.parse(constraint)
    accepted = [version for version in found if ours.accepts(Version.parse(version))]
    assert accepted == [version for version in found if accepted_by_reference(constraint, version)]


@settings(max_examples=250, deadline=None)
@given(st.lists(versions, max_size=20))
def test_versions_are_ordered_as_the_reference_orders_them(found: list[str]) -> None:
    assert [str(v) for v in sorted(map(Version.parse, found))] == [str(v) for v in sorted(map(Reference, found))]


@settings(max_examples=300, deadline=None)
@given(constraints, st.dictionaries(versions, st.sampled_from(list(LifecycleState)), max_size=8))
def test_what_is_resolved_is_the_highest_that_the_reference_accepts(
    constraint: str, states: dict[str, LifecycleState]
) -> None:
    accepted = [version for version in states if accepted_by_reference(constraint, version)]
    runs = [v for v in accepted if states[v] in (LifecycleState.AVAILABLE, LifecycleState.DEFERRED)]
    runs = runs or [v for v in accepted if states[v] is LifecycleState.DEPRECATED]
    expected: str | Reason
    held = [Reference(v) for v in accepted if states[v] is LifecycleState.QUARANTINED]
    if runs and held and max(held).major > max(map(Reference, runs)).major:
        # An older major is another contract, so a quarantined one is not replaced by it.
        expected = Reason.TOOL_UNAVAILABLE
    elif runs:
        expected = str(max(map(Reference, runs)))
    elif accepted:
        ended = states[str(max(map(Reference, accepted)))] in (LifecycleState.SUNSET, LifecycleState.RETIRED)
        expected = Reason.TOOL_DEPRECATED if ended else Reason.TOOL_UNAVAILABLE
    else:
        expected = Reason.TOOL_VERSION_NOT_FOUND
    assert resolved([_head(version, state) for version, state in states.items()], constraint) == expected


@settings(max_examples=300, deadline=None)
@given(st.text("0123456789.x*^~<>=|- v", max_size=20))
def test_any_text_is_a_constraint_or_a_typed_refusal(text: str) -> None:
    assert _outcome(text) in (True, False, Reason.INVALID_REQUEST)


def _outcome(text: str) -> bool | Reason:
    try:
        return Constraint.parse(text).accepts(Version(1, 2, 3))
    except MeshError as error:
        return error.reason


@pytest.mark.parametrize(
    ("constraint", "version"),
    [(">=1.2.3-rc.1", "1.2.3-rc.2"), ("^1.2.3-rc.1", "1.2.3-rc.2"), ("1.2.3-rc.1 - 2", "1.2.3-rc.2")],
)
def test_the_intended_difference_is_the_one_that_is_documented(constraint: str, version: str) -> None:
    """npm lets a tagged bound accept pre-releases of the same numbers; here such a bound is invalid."""
    assert NpmSpec(constraint).match(Reference(version))
    with pytest.raises(MeshError) as caught:
        Constraint.parse(constraint)
    assert caught.value.reason is Reason.INVALID_REQUEST


def resolved(heads: Sequence[VersionHead], constraint: str) -> str | Reason:
    try:
        return str(resolve(TOOL, heads, constraint, NOW).version)
    except MeshError as error:
        return error.reason


def _head(version: str, state: LifecycleState) -> VersionHead:
    deprecation = Deprecation(NOW) if state is LifecycleState.DEPRECATED else None
    standing = Standing(state, NOW, 1, "", deprecation)
    return VersionHead(TOOL, Version.parse(version), "sha256:0", 1, NOW, "operator", standing)
