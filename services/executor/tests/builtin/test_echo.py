"""echo."""

from __future__ import annotations

from typing import Any

import pytest

from services.executor.builtin.echo import Echo


@pytest.mark.parametrize(
    "arguments", [{"text": "a"}, {"text": "a", "value": None}, {"text": "", "value": [1, {"x": 2.5}]}]
)
def test_it_returns_what_was_given_and_nothing_else(arguments: dict[str, Any]) -> None:
    assert Echo().call(dict(arguments)) == arguments
