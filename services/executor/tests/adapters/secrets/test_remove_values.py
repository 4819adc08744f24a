"""What a service repeats of a credential."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.executor.adapters.secrets.remove_values import remove_cut_values, remove_values


@pytest.mark.parametrize("value", ["plain", 'with "quotes"', "with \\ backslashes\\"])
def test_a_value_is_removed_as_it_is_in_json_and_in_json_inside_json(value: str) -> None:
    inner = json.dumps({"key": f"Bearer {value}"})
    content = json.dumps({"whole": value, "text": inner}).encode()
    clean = json.loads(remove_values(content, ["other", value]))
    assert clean == {"whole": "[redacted]", "text": '{"key": "Bearer [redacted]"}'}
    assert remove_values(f"before {value} after".encode(), [value]) == b"before [redacted] after"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("key s3cr3t-value!", "key [redacted]!"),
        ("key s3cr3t-v", "key [redacted]"),
        ("t-value and more", "[redacted] and more"),
        ("s3cr3t-value", "[redacted]"),
        ("ends with s3c", "ends with s3c"),
        ("", ""),
        ('{"text": "{\\"key\\": \\"s3cr3t-value\\"}"}', '{"text": "{\\"key\\": \\"[redacted]\\"}"}'),
    ],
)
def test_what_is_left_of_a_value_at_a_cut_is_removed(text: str, cleaned: str) -> None:
    assert remove_cut_values(text, ["s3cr3t-value"]) == cleaned


@given(st.text("ab", min_size=7, max_size=40), st.integers(6, 39), st.text("xy", max_size=20))
def test_every_long_enough_part_at_an_end_is_removed(value: str, size: int, rest: str) -> None:
    size = min(size, len(value) - 1)
    for text in (rest + value[:size], value[-size:] + rest):
        cleaned = remove_cut_values(text, [value])
        assert "[redacted]" in cleaned
        # At most an edge that is too short to tell stays.
        assert sum(cleaned.replace("[redacted]", "").count(letter) for letter in "ab") < 6


def test_a_value_of_the_greatest_length_is_removed_at_every_cut() -> None:
    value = "".join(chr(97 + number * number % 26) for number in range(8192)) + "end"
    for size in (6, 4096, len(value) - 1):
        assert remove_cut_values("key " + value[:size], [value]) == "key [redacted]"
        assert remove_cut_values(value[-size:] + " rest", [value]) == "[redacted] rest"
