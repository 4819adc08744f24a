"""arithmetic: computes what an expression is worth."""

from __future__ import annotations

from typing import Any

from libs.common.errors import Violation
from services.executor.builtin.expression import MAX_DIGITS, CalculationError, ExpressionError, evaluate
from services.executor.builtin.tool import read_only_manifest
from services.executor.domain.errors import arguments_invalid, execution_failed

# What every reader of the mesh's JSON can hold; larger integers travel as their digits.
_LOWEST, _HIGHEST = -(2**63), 2**64 - 1


class Arithmetic:
    """Computes with exact integers and with floating point where the expression asks for it."""

    manifest = read_only_manifest(
        tool_id="arithmetic",
        version="1.0.0",
        title="Arithmetic",
        description=(
            "Computes an arithmetic expression: + - * / // % ** with parentheses, integers, decimals, "
            "and the functions "
            "abs, round, min, max, sqrt. Integers are exact at any size; / and sqrt give floating point numbers."
        ),
        search_hint="compute an arithmetic expression exactly",
        tags=["math"],
        input_schema={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "expression": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 500,
                    "description": "Such as `(1 + 2) * 3`.",
                }
            },
            "required": ["expression"],
            "additionalProperties": False,
        },
        output_schema={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "result": {
                    "type": ["number", "string"],
                    "pattern": "^-?[0-9]+$",
                    "maxLength": MAX_DIGITS + 2,
                    "description": "The value; an integer beyond 64 bits as its decimal digits.",
                },
                "exact": {"type": "boolean", "description": "True for an integer, which was never rounded."},
            },
            "required": ["result", "exact"],
            "additionalProperties": False,
        },
        examples=[
            ("Precedence and parentheses", {"expression": "(1 + 2) * 3 ** 2"}, {"result": 27, "exact": True}),
            ("Division", {"expression": "7 / 2"}, {"result": 3.5, "exact": False}),
            (
                "Beyond 64 bits",
                {"expression": "2 ** 100"},
                {"result": "1267650600228229401496703205376", "exact": True},
            ),
        ],
    )

    def call(self, arguments: dict[str, Any]) -> Any:
        """Return the value. Raises ARGUMENTS_INVALID for a syntax error, EXECUTION_FAILED for an undefined value."""
        try:
            value = evaluate(arguments["expression"])
        except ExpressionError as error:
            raise arguments_invalid([Violation("/expression", "expression", str(error))]) from None
        except CalculationError as error:
            raise execution_failed(str(error)) from None
        if isinstance(value, float):
            return {"result": value, "exact": False}
        return {"result": value if _LOWEST <= value <= _HIGHEST else str(value), "exact": True}
