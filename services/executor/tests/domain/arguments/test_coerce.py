"""Readings: exact, or none at all."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from libs.common.json.jsonio import dump, parse
from services.executor.domain.arguments.coerce import Unread, reading

LOSSY, UNLIKE = Unread.LOSSY, Unread.UNLIKE


@pytest.mark.parametrize(
    ("value", "declared", "read"),
    [
        ("42", "integer", 42),
        ("-7", "integer", -7),
        ("42.0", "integer", 42),
        ("4.2e1", "integer", 42),
        ("18446744073709551615", "integer", 2**64 - 1),
        ("18446744073709551616", "integer", LOSSY),
        ("-9223372036854775809", "integer", LOSSY),
        ("12345678901234567890123", "integer", LOSSY),
        ("42.5", "integer", LOSSY),
        ("1e400", "integer", LOSSY),
        ("1e999999999999", "integer", LOSSY),
        ("0x10", "integer", LOSSY),
        ("1_000", "integer", LOSSY),
        ("1,000", "integer", LOSSY),
        ("+1", "integer", LOSSY),
        ("007", "integer", LOSSY),
        ("9" * 500, "integer", LOSSY),
        ("٤٢", "integer", UNLIKE),
        ("forty-two", "integer", UNLIKE),
        ("", "integer", UNLIKE),
        (" 42", "integer", UNLIKE),
        ("42\n", "integer", UNLIKE),
        (42.0, "integer", 42),
        (42.5, "integer", UNLIKE),
        (1e300, "integer", UNLIKE),
        (True, "integer", UNLIKE),
        ("42", "number", 42),
        ("0.1", "number", 0.1),
        ("1e22", "number", 1e22),
        ("9007199254740993", "number", 9007199254740993),
        ("9007199254740993.0", "number", LOSSY),
        ("0.1234567890123456789", "number", LOSSY),
        ("1e400", "number", LOSSY),
        ("1e-400", "number", LOSSY),
        ("NaN", "number", LOSSY),
        ("-Infinity", "number", LOSSY),
        (".5", "number", LOSSY),
        ("5.", "number", LOSSY),
        ("none", "number", UNLIKE),
        ("true", "boolean", True),
        ("false", "boolean", False),
        ("True", "boolean", UNLIKE),
        ("1", "boolean", UNLIKE),
        (1, "boolean", UNLIKE),
        ('{"a":[1]}', "object", {"a": [1]}),
        (' [1, "2"] ', "array", [1, "2"]),
        ("{}", "array", UNLIKE),
        ('{"a":1,"a":2}', "object", LOSSY),
        ('{"a":12345678901234567890123}', "object", LOSSY),
        ("[" * 70 + "]" * 70, "array", LOSSY),
        ("[" * 20_000 + "]" * 20_000, "array", LOSSY),
        ("{a: 1}", "object", UNLIKE),
        ("[1", "array", UNLIKE),
        ("x", "array", UNLIKE),
        (42, "string", UNLIKE),
        ("null", "null", UNLIKE),
        (["1"], "integer", UNLIKE),
    ],
)
def test_a_value_is_read_exactly_or_not_at_all(value: Any, declared: str, read: Any) -> None:
    found = reading(value, declared)
    assert found == read
    assert type(found) is type(read)


def test_there_must_be_room_for_what_a_text_holds() -> None:
    assert reading("[[1]]", "array", room=2) == [[1]]
    assert reading("[[1]]", "array", room=1) is LOSSY


NUMERALS = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.from_regex(r"[+-]?[0-9]{0,30}\.?[0-9]{0,30}([eE][+-]?[0-9]{1,6})?", fullmatch=True),
)


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(NUMERALS, st.sampled_from(["integer", "number"]))
@example("4603301.5582569363", "number")
def test_what_is_read_is_the_number_that_was_written_and_is_written_again_as_it(text: str, declared: str) -> None:
    found = reading(text, declared)
    if isinstance(found, Unread):
        return
    # The number is written in its shortest spelling, and may be read in the 17 digits that name the same double.
    spellings = [dump(found).decode(), *([f"{found:.17g}"] if isinstance(found, float) else [])]
    assert Decimal(text) in map(Decimal, spellings)
    assert parse(dump(found)) == found
    assert not isinstance(found, bool)
    assert declared == "number" or type(found) is int


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text())
def test_a_text_that_is_read_as_a_number_is_nothing_but_one(text: str) -> None:
    found = reading(text, "number")
    if not isinstance(found, Unread):
        assert math.isfinite(float(text))
        assert parse(text.encode()) == found


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(), st.lists, max_leaves=20))
def test_the_json_text_of_a_list_is_read_as_that_list(value: Any) -> None:
    found = reading(dump([value]).decode(), "array")
    assert found == [value]
    # What is of its type already is not read again.
    assert reading(found, "array") is UNLIKE
