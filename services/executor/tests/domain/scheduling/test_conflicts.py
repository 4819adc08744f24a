"""What calls touch, and when two of them are in each other's way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.common.json.globs import matches
from libs.common.json.resource_pointers import ResourcePointers
from services.executor.domain.scheduling.conflicts import (
    MAX_PATTERNS,
    conflicts,
    footprint_of,
    overlap,
    touches_nothing,
)
from services.executor.domain.tool import Confinement, Effect, Mutation, Placement, Tool
from services.executor.tests.samples import a_tool

SAFE = Placement(concurrency_safe=True)
ORDER = ResourcePointers.of({"properties": {"id": {"x-resource": "order"}, "ids": {"x-resource": "order"}}})


def reader(**changes: Any) -> Tool:
    return a_tool(**{"qualified": "shop.read", "placement": SAFE, "resources": ORDER, **changes})


def writer(*patterns: str, **changes: Any) -> Tool:
    effects = tuple(Effect(pattern, "update") for pattern in patterns)
    fields = {"qualified": "shop.write", "mutation": Mutation.WRITE_REVERSIBLE, "effects": effects, "placement": SAFE}
    return a_tool(**{**fields, **changes})


def meet(one: Tool, arguments: dict[str, Any], other: Tool, others: dict[str, Any]) -> bool:
    """Whether two calls are in each other's way, asked both ways round."""
    first, second = footprint_of(one, arguments), footprint_of(other, others)
    assert conflicts(first, second) == conflicts(second, first)
    return conflicts(first, second)


def test_a_pure_tool_conflicts_with_no_other() -> None:
    assert touches_nothing(a_tool(placement=SAFE))


@pytest.mark.parametrize(
    "tool",
    [
        a_tool(placement=Placement()),
        reader(),
        writer("order:{id}"),
        writer(),
        a_tool(placement=SAFE, effects=(Effect("x", "create"),)),
    ],
    ids=["not safe", "reads what is named", "writes", "writes without a word", "declares an effect"],
)
def test_every_other_tool_may_be(tool: Tool) -> None:
    assert not touches_nothing(tool)


def test_calls_of_a_tool_that_is_not_safe_never_overlap() -> None:
    tool = a_tool(placement=Placement())
    assert meet(tool, {"text": "a"}, tool, {"text": "b"})


def test_calls_of_different_tools_that_touch_nothing_overlap() -> None:
    assert not meet(a_tool(), {}, a_tool(qualified="core.other"), {})


@pytest.mark.parametrize(
    ("closed", "one", "other", "expected"),
    [
        (True, {"id": 1}, {"id": 2}, False),
        (True, {"id": 1}, {"id": 1}, True),
        (True, {"id": 1}, {"ids": [3, 1]}, True),
        (True, {"id": 1}, {}, True),
        (False, {"id": 1}, {"id": 2}, True),
    ],
    ids=["apart", "same", "one in common", "names nothing", "may reach beyond"],
)
def test_whether_a_tool_is_safe_may_depend_on_its_input(
    closed: bool, one: dict[str, Any], other: dict[str, Any], expected: bool
) -> None:
    tool = reader(placement=Placement(), closed_world=closed)
    assert meet(tool, one, tool, other) is expected


def test_a_schema_that_cannot_be_followed_keeps_nothing_apart() -> None:
    untold = ResourcePointers.of({"properties": {"id": {"$ref": "elsewhere#/x"}, "a": {"x-resource": "b"}}})
    tool = reader(placement=Placement(), closed_world=True, resources=untold)
    assert meet(tool, {"id": 1}, tool, {"id": 2})


def test_writers_of_one_resource_are_in_each_others_way_across_tools() -> None:
    one, other = writer("order:{id}"), writer("order:*", qualified="shop.sweep")
    assert meet(one, {"id": 1}, other, {})
    assert not meet(one, {"id": 1}, writer("mail:*", qualified="shop.mail"), {})


def test_placeholders_are_filled_from_the_arguments() -> None:
    one, other = writer("order:{id}/lines"), writer("order:{order}/lines", qualified="shop.other")
    assert meet(one, {"id": "7"}, other, {"order": 7})
    assert not meet(one, {"id": 7}, other, {"order": 8})


@pytest.mark.parametrize("value", [None, True, [7], {"a": 7}, "a/../7", "./7", "a//7", ".."])
def test_a_placeholder_that_cannot_be_told_means_anything(value: Any) -> None:
    one, other = writer("order:{id}"), writer("order:{id}", qualified="shop.other")
    assert meet(one, {"id": value}, other, {"id": 7})
    assert meet(one, {}, other, {"id": 7})


def test_an_argument_cannot_pose_as_a_pattern() -> None:
    one, other = writer("order:{id}"), writer("order:{id}", qualified="shop.other")
    assert not meet(one, {"id": "*"}, other, {"id": "7"})
    assert meet(one, {"id": "*"}, other, {"id": "*"})
    assert meet(one, {"id": "*"}, one, {"id": "*"})


def test_a_very_long_argument_still_meets_itself() -> None:
    one, other = writer("order:{id}"), writer("order:{id}", qualified="shop.other")
    assert meet(one, {"id": "x" * 5000}, other, {"id": "x" * 5000})


def test_readers_overlap_each_other_but_no_writer_of_the_same_resource() -> None:
    assert not meet(reader(), {"id": 1}, reader(qualified="shop.look"), {"id": 1})
    assert meet(reader(), {"id": 1}, writer("order:{id}"), {"id": 1})
    assert not meet(reader(), {"id": 1}, writer("order:{id}"), {"id": 2})


def test_a_safe_tool_vouches_for_its_own_calls_unless_they_change_the_same_thing() -> None:
    mail, order = writer("mail:*"), writer("order:{id}", resources=ORDER)
    assert not meet(mail, {}, mail, {})
    assert not meet(order, {"id": 1}, order, {"id": 2})
    assert meet(order, {"id": 1}, order, {"id": 1})


def test_one_version_that_is_not_safe_keeps_all_versions_apart() -> None:
    assert meet(a_tool(placement=SAFE), {}, a_tool(placement=Placement()), {})


def test_a_writer_that_does_not_say_what_it_writes_may_write_anything() -> None:
    silent = writer(qualified="shop.silent")
    assert meet(silent, {}, writer("order:1"), {})
    assert meet(silent, {}, reader(), {"id": 1})


def test_many_effects_are_seen_as_one_that_covers_them() -> None:
    many = writer(*(f"order:{number}/x" for number in range(MAX_PATTERNS + 1)), qualified="shop.many")
    assert len(footprint_of(many, {}).writes) == 1
    assert meet(many, {}, writer("order:{id}"), {"id": 3})
    assert not meet(many, {}, writer("mail:{id}"), {"id": 3})


few = st.text(alphabet="ab*", max_size=5)


@settings(max_examples=400, deadline=None)
@given(few, few, st.text(alphabet="ab", max_size=10))
def test_patterns_that_match_a_text_together_overlap(one: str, other: str, text: str) -> None:
    if matches(one, text) and matches(other, text):
        assert overlap(one, other)


@settings(max_examples=300, deadline=None)
@given(few, few)
def test_patterns_that_overlap_have_a_text_in_common(one: str, other: str) -> None:
    assert overlap(one, other) == overlap(other, one)
    if overlap(one, other):
        assert any(matches(one, text) and matches(other, text) for text in _witnesses(one, other))


def _witnesses(one: str, other: str) -> list[str]:
    """Texts that a pair of patterns has in common, if any: the parts of one, then the parts of the other."""
    heads = {pattern.split("*")[0] for pattern in (one, other)}
    tails = {pattern.split("*")[-1] for pattern in (one, other)}
    middle = "".join(one.split("*")) + "".join(other.split("*"))
    return [one, other, *(head + middle + tail for head in heads for tail in tails)]


def test_files_of_different_tenants_never_conflict_unless_their_volume_is_shared() -> None:
    one = writer("file:reports/{name}.md", confinement=Confinement(reads=("reports",), writes=("reports",)))
    other = writer("file:reports/*", confinement=one.confinement, qualified="shop.clean")
    anything = writer("file:*", qualified="shop.any")
    acme, beta = (footprint_of(one, {"name": "a"}, tenant) for tenant in ("acme", "beta"))
    assert not conflicts(acme, beta)
    assert not conflicts(acme, footprint_of(other, {}, "beta"))
    assert conflicts(acme, footprint_of(other, {}, "acme"))
    assert conflicts(acme, footprint_of(anything, {}, "beta"))
    shared = frozenset({"reports"})
    assert conflicts(footprint_of(one, {"name": "a"}, "acme", shared), footprint_of(other, {}, "beta", shared))
