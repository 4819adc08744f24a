"""echo: says back what it hears."""

from __future__ import annotations

from typing import Any

from services.executor.builtin.tool import read_only_manifest

_PROPERTIES = {
    "text": {"type": "string", "maxLength": 65536, "description": "What to say back."},
    "value": {"description": "Any JSON to return beside the text, unchanged."},
}


class Echo:
    """Returns its arguments as they are; what was not given is not returned."""

    manifest = read_only_manifest(
        tool_id="echo",
        version="1.0.0",
        title="Echo",
        description=(
            "Returns the given text and value unchanged. Use it to check that calls reach the mesh and come back whole."
        ),
        search_hint="return the same text and value unchanged",
        tags=["diagnostics", "text"],
        input_schema={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": _PROPERTIES,
            "required": ["text"],
            "additionalProperties": False,
        },
        output_schema={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": _PROPERTIES,
            "required": ["text"],
            "additionalProperties": False,
        },
        examples=[
            ("A text", {"text": "hello"}, {"text": "hello"}),
            (
                "A text and an integer that a double could not hold",
                {"text": "n", "value": {"n": 9007199254740993}},
                {"text": "n", "value": {"n": 9007199254740993}},
            ),
        ],
    )

    def call(self, arguments: dict[str, Any]) -> Any:
        """Return the arguments."""
        return arguments
