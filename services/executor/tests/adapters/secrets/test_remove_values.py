"""What a service repeats of a credential."""

from __future__ import annotations

import json

import pytest

from services.executor.adapters.secrets.remove_values import remove_values


@pytest.mark.parametrize("value", ["plain", 'with "quotes"', "with \\ backslashes\\"])
def test_a_value_is_removed_as_it_is_in_json_and_in_json_inside_json(value: str) -> None:
    inner = json.dumps({"key": f"Bearer {value}"})
    content = json.dumps({"whole": value, "text": inner}).encode()
    clean = json.loads(remove_values(content, ["other", value]))
    assert clean == {"whole": "[redacted]", "text": '{"key": "Bearer [redacted]"}'}
    assert remove_values(f"before {value} after".encode(), [value]) == b"before [redacted] after"
