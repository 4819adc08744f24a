"""Versions are ordered as the specification orders them, and constraints mean what their writers mean."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.common.errors import MeshError, Reason
from libs.common.semver import Constraint, Version, highest

ORDERED = [
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.2.0",
    "2.0.0",
]


def test_precedence_is_the_specifications() -> None:
    versions = [Version.parse(text) for text in ORDERED]
    assert sorted(versions) == versions
    assert len(set(versions)) == len(versions)
    assert [str(v) for v in versions] == ORDERED


def test_build_parts_do_not_order() -> None:
    assert Version.parse("1.0.0+a") == Version.parse("1.0.0+b")


@pytest.mark.parametrize(
    ("constraint", "accepted", "refused"),
    [
        ("", ["0.1.0", "9.9.9"], ["1.0.0-rc.1"]),
        ("latest", ["0.1.0"], ["2.0.0-beta"]),
        ("1.2.3", ["1.2.3", "1.2.3+build"], ["1.2.4", "1.2.3-rc.1"]),
        ("1.0.0-rc.1", ["1.0.0-rc.1"], ["1.0.0"]),
        ("^1.2", ["1.2.0", "1.9.9"], ["1.1.9", "2.0.0", "1.3.0-rc.1"]),
        ("^1.2.3", ["1.2.3", "1.9.0"], ["1.2.2", "2.0.0"]),
        ("^0.2.3", ["0.2.3", "0.2.9"], ["0.2.2", "0.3.0"]),
        ("^0.0.3", ["0.0.3"], ["0.0.4"]),
        ("^0", ["0.0.1", "0.9.9"], ["1.0.0"]),
        ("~1.2", ["1.2.0", "1.2.9"], ["1.3.0"]),
        ("~1", ["1.0.0", "1.9.0"], ["2.0.0"]),
        ("1.x", ["1.0.0", "1.9.9"], ["0.9.9", "2.0.0"]),
        ("1.2.*", ["1.2.0"], ["1.3.0"]),
        ("2", ["2.0.0", "2.5.1"], ["1.9.9", "3.0.0"]),
        (">=1.2 <2", ["1.2.0", "1.9.9"], ["1.1.0", "2.0.0"]),
        (">1.2", ["1.3.0"], ["1.2.0", "1.2.9"]),
        ("<=1.2", ["1.2.9", "0.1.0"], ["1.3.0"]),
        ("=1.2", ["1.2.5"], ["1.3.0"]),
        ("1.2 - 1.4", ["1.2.0", "1.4.9"], ["1.1.9", "1.5.0", "1.3.0-rc.1"]),
        ("1.2.3 - 2", ["1.2.3", "2.9.9"], ["1.2.2", "3.0.0"]),
        ("^1.2 || ^3", ["1.2.0", "3.1.0"], ["1.1.0", "2.0.0", "4.0.0"]),
        ("1.0.0-rc.1||~2.1", ["1.0.0-rc.1", "2.1.7"], ["1.0.0", "2.2.0"]),
    ],
)
def test_constraints(constraint: str, accepted: list[str], refused: list[str]) -> None:
    parsed = Constraint.parse(constraint)
    assert [v for v in accepted if not parsed.accepts(Version.parse(v))] == []
    assert [v for v in refused if parsed.accepts(Version.parse(v))] == []


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "1.2.3.4",
        "^",
        "~latest",
        ">=",
        "1.x.y",
        "^1.2 ||",
        "||",
        "1 | 2",
        "1 - ",
        "1 - 2 - 3",
        "v1",
        "1.-1.0",
        "9" * 40,
        "^99999999999.1",
        "^\u0661.2",
        ">=1.\uff12",
        "1.\u0662.x",
        "~1.2\u00a0||\u00a02",
        "^1.2.3-rc.01",
        "1.2.3-rc.01",
        "01.x",
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(MeshError) as caught:
        Constraint.parse(text)
    assert caught.value.reason is Reason.INVALID_REQUEST


@pytest.mark.parametrize("text", ["", "1", "1.2", "01.2.3", "1.2.3-", "1.2.3 ", "a.b.c", f"{'9' * 30}.0.0"])
def test_a_version_is_complete_or_refused(text: str) -> None:
    with pytest.raises(MeshError):
        Version.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "\u0661.0.0",
        "1.\uff10.0",
        "1.1\u0660.0",
        "1.0.0-\u0661",
        "1.0.0\n",
        "1.0.0-rc.01",
        "1.0.0-00",
        "1.0.0-a..b",
        "1.0.0-.a",
        "1.0.0-a.",
        "1.0.0+a..b",
        "1.0.0+",
    ],
)
def test_a_version_has_one_text_only(text: str) -> None:
    """What other letters or zeros would make of it is another text for the same version, or none that others read."""
    with pytest.raises(MeshError):
        Version.parse(text)


@pytest.mark.parametrize("text", ["1.0.0-0", "1.0.0-0a", "1.0.0--", "1.0.0-01a.10", "1.0.0-a-b.0+001.b-1", "0.0.0+0-0"])
def test_what_the_specification_allows_is_read_as_it_is_written(text: str) -> None:
    assert str(Version.parse(text)) == text
    assert Constraint.parse(text).accepts(Version.parse(text))


def test_highest() -> None:
    versions = [Version.parse(v) for v in ("1.0.0", "1.4.0", "2.0.0", "2.1.0-rc.1")]
    assert str(highest(versions, Constraint.parse("latest"))) == "2.0.0"
    assert str(highest(versions, Constraint.parse("1.x"))) == "1.4.0"
    assert highest(versions, Constraint.parse("^3")) is None


PARTIALS = st.one_of(
    st.tuples(st.integers(0, 2)).map(lambda n: f"{n[0]}"),
    st.tuples(st.integers(0, 2), st.integers(0, 2)).map(lambda n: f"{n[0]}.{n[1]}"),
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)).map(lambda n: ".".join(map(str, n))),
)
TERMS = st.tuples(st.sampled_from(["", "^", "~", ">", ">=", "<", "<=", "="]), PARTIALS).map("".join)
ALTERNATIVES = st.one_of(
    st.lists(TERMS, min_size=1, max_size=2).map(" ".join),
    st.tuples(PARTIALS, PARTIALS).map(" - ".join),
    st.sampled_from(["1.0.0-rc.1", "1.0.0", "2.1.0-a", "1.2.0+build"]),
)
CONSTRAINTS = st.lists(ALTERNATIVES, min_size=1, max_size=3).map(" || ".join)
VERSIONS = [
    Version(major, minor, patch, tail)
    for major in range(4)
    for minor in range(4)
    for patch in range(4)
    for tail in ((), ("rc", "1"), ("a",))
]


@settings(max_examples=800, deadline=None)
@given(CONSTRAINTS, CONSTRAINTS)
def test_a_constraint_is_within_another_exactly_if_it_accepts_nothing_else(child: str, parent: str) -> None:
    inner, outer = Constraint.parse(child), Constraint.parse(parent)
    surplus = [version for version in VERSIONS if inner.accepts(version) and not outer.accepts(version)]
    # The versions here reach beyond every number that the constraints name, so they show every surplus there is.
    assert inner.within(outer) is (surplus == [])


@pytest.mark.parametrize(
    ("child", "parent", "within"),
    [
        ("^1.2", ">=1", True),
        ("^1.2", "1.x", True),
        ("1.x", "^1.2", False),
        (">=1", ">=1 <2 || >=2", True),
        (">=1 <3", "1.x || 2.x", True),
        ("1.0.0-rc.1", "latest", False),
        ("1.0.0-rc.1", "^1 || 1.0.0-rc.1", True),
        ("latest", "*", True),
        ("latest", "^1", False),
        (">2 <1", "3.0.0", True),
    ],
)
def test_within(child: str, parent: str, within: bool) -> None:
    assert Constraint.parse(child).within(Constraint.parse(parent)) is within
