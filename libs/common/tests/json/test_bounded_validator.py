"""Compiling schemas from outside."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.json.bounded_validator import SchemaCompilationError, compile_bounded, compile_linear
from libs.common.json.schema_guard import TOOL_LIMITS


@pytest.mark.parametrize(
    "schema", [{"type": 7}, {"pattern": "("}, {"pattern": "(?=a)"}, {"$ref": "https://elsewhere.example/schema"}]
)
def test_an_invalid_or_unbounded_schema_is_refused(schema: dict[str, Any]) -> None:
    for compiled in (compile_linear, lambda schema: compile_bounded(schema, TOOL_LIMITS)):
        with pytest.raises(SchemaCompilationError):
            compiled(schema)  # type: ignore[no-untyped-call]


def test_formats_are_checked() -> None:
    validator = compile_bounded({"format": "date"}, TOOL_LIMITS)
    assert validator.is_valid("2024-02-29")
    assert not validator.is_valid("2023-02-29")
