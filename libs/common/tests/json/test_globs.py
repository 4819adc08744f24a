"""Patterns: they match what their letters say, and one covers another only if it truly does."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.common.json.globs import covers, matches
from libs.common.tool_names import grant_within

PATTERNS = st.text("ab*", max_size=7)


def as_expression(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(".*" if letter == "*" else re.escape(letter) for letter in pattern), re.DOTALL)


@given(PATTERNS, st.text("ab*\n", max_size=8))
def test_matching_is_what_a_regular_expression_would_say(pattern: str, text: str) -> None:
    assert matches(pattern, text) is bool(as_expression(pattern).fullmatch(text))


@settings(max_examples=1000, deadline=None)
@given(PATTERNS, PATTERNS, st.lists(st.text("abc", max_size=4), min_size=7, max_size=7))
def test_what_a_covered_pattern_matches_the_covering_one_matches(parent: str, child: str, fills: list[str]) -> None:
    if covers(parent, child):
        words = iter(fills)
        text = "".join(next(words) if letter == "*" else letter for letter in child)
        assert matches(parent, text)


@given(PATTERNS)
def test_every_pattern_covers_itself_and_is_covered_by_the_star(pattern: str) -> None:
    assert covers(pattern, pattern)
    assert covers("*", pattern)


def test_a_hostile_pattern_takes_no_longer_than_its_length_allows() -> None:
    assert not matches("*a" * 160 + "b", "a" * 2048)


@pytest.mark.parametrize(
    ("child", "parent", "within"),
    [
        ("echo", "*", True),
        ("*", "*", True),
        ("*", "core.*", False),
        ("*", "*.*", True),
        ("core.*", "*", True),
        ("echo", "core.echo", True),
        ("core.echo", "ech*", True),
        ("acme.echo", "echo", False),
        ("acme.echo", "ac*.echo", True),
        ("ac*.echo", "acme.echo", False),
        ("arith*", "arith_*", False),
        ("arith_*", "arith*", True),
        ("a*b*c", "a*c", True),
        ("a*c", "a*b*c", False),
    ],
)
def test_grants_within_grants(child: str, parent: str, within: bool) -> None:
    assert grant_within(child, parent) is within


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [("a*a", "a", False), ("a*a", "aa", True), ("*ab*b", "ab", False), ("*ab*b", "xabb", True), ("**", "", True)],
)
def test_the_pieces_of_a_pattern_do_not_overlap(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


def test_a_long_text_is_matched_in_one_pass() -> None:
    """One that takes the product of both lengths would not end within the timeout of a test."""
    assert not matches("*" + "a" * 50_000 + "b*", "a" * 3_000_000)
    assert matches("*a" * 50_000 + "*", "a" * 3_000_000)
