"""The weight of regular expressions."""

from __future__ import annotations

import pytest

from libs.common.json.pattern_weight import MAX_WEIGHT, weight


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", 0),
        ("abc", 3),
        ("a{3}", 3),
        ("(ab){10}", 20),
        ("((a{10}){10}){10}", 1000),
        ("a{2,5}b", 6),
        ("a{2,}", 2),
        ("(a+)+$", 1),
        (r"\{5}", 3),
        ("[a-z]{4}", 4),
        ("[(?=]", 1),
        (r"[\]{9}]", 1),
        ("(?:ab){3}", 9),
        ("a{", 2),
        (")", 0),
    ],
)
def test_repetitions_are_taken_apart(pattern: str, expected: int) -> None:
    assert weight(pattern) == expected


def test_classes_that_are_never_closed_are_read_once() -> None:
    """Reading each to the end of the pattern would not end within the timeout of a test."""
    assert weight("[" * 1_000_000) is not None


@pytest.mark.parametrize("pattern", ["(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", r"(a)\1", r"(?<n>a)\k<n>", "(?>a)"])
def test_lookaround_and_backreferences_have_no_weight(pattern: str) -> None:
    assert weight(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,63}$",
        r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$",
        r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.){1,10}[a-z]{2,63}$",
        r"^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$",
        r"^\p{L}{1,50}$",
    ],
)
def test_honest_patterns_are_light(pattern: str) -> None:
    found = weight(pattern)
    assert found is not None
    assert found <= MAX_WEIGHT


@pytest.mark.parametrize(
    "pattern", ["((a{500}){500}){500}", "a" * 60_000, "(?:a?){5000}", r"\p{L}{1000}", "(" * 9 + "a" * 3000]
)
def test_bombs_are_heavy(pattern: str) -> None:
    found = weight(pattern)
    assert found is None or found > MAX_WEIGHT
