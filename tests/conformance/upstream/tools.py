"""The tools of the suite."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from tests.conformance.upstream.asking_tools import ASKING
from tests.conformance.upstream.request import Request, RequestError
from tests.conformance.upstream.resources import PIXEL, SILENCE

_LOG_SECONDS = 0.02
_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
_SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


class Tools:
    """The tools. One of them appears and disappears."""

    def __init__(self) -> None:
        self._appeared = False
        plain: dict[str, Any] = {
            "test_simple_text": text("This is a simple text response for testing."),
            "test_image_content": content(_image()),
            "test_audio_content": content({"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}),
            "test_embedded_resource": content(
                _embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
            ),
            "test_multiple_content_types": content(
                {"type": "text", "text": "Multiple content types test:"},
                _image(),
                _embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
            ),
            "test_error_handling": {**text("This tool intentionally returns an error for testing"), "isError": True},
            "json_schema_2020_12_tool": text("The schema holds."),
        }
        self._plain = plain

    def listed(self) -> list[dict[str, Any]]:
        """Return the definitions."""
        names = [*self._plain, *ASKING, "test_tool_with_logging", "test_logging_tool", "test_tool_with_progress"]
        names += ["test_trigger_tool_change", *(["test_appearing_tool"] if self._appeared else [])]
        return [_definition(name) for name in names]

    def call(self, request: Request) -> Generator[dict[str, Any], None, Any]:
        """Return notifications, then the result."""
        name = request.params["name"]
        if name in self._plain:
            return self._plain[name]
        if name in ASKING:
            return ASKING[name](request)
        if name in ("test_tool_with_logging", "test_logging_tool"):
            for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
                yield _notification("notifications/message", {"level": "info", "logger": "fixtures", "data": line})
                time.sleep(_LOG_SECONDS)
            return text("Logged three lines.")
        if name == "test_tool_with_progress":
            for done in (0, 50, 100):
                params = {"progressToken": request.progress_token, "progress": done, "total": 100}
                yield _notification("notifications/progress", params)
            return text("Reported progress.")
        if name == "test_trigger_tool_change":
            self._appeared = not self._appeared
            yield _CHANGED
            return text("The tools changed.")
        if name == "test_appearing_tool":
            return text("Here for now.")
        raise RequestError(-32602, "unknown tool")


def text(value: str) -> dict[str, Any]:
    """Return the result of a tool that says something."""
    return content({"type": "text", "text": value})


def content(*parts: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a tool."""
    return {"content": list(parts)}


def _definition(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False}
    if name == "json_schema_2020_12_tool":
        schema = _SCHEMA_2020_12
    elif name == "test_sampling":
        schema |= {"properties": {"prompt": {"type": "string"}}, "required": ["prompt"]}
    elif name == "test_elicitation":
        schema |= {"properties": {"message": {"type": "string"}}, "required": ["message"]}
    return {
        "name": name,
        "title": name.replace("_", " "),
        "description": f"A fixture of the conformance suite, {name}.",
        "inputSchema": schema,
        "annotations": {"readOnlyHint": True},
    }


def _image() -> dict[str, Any]:
    return {"type": "image", "data": PIXEL, "mimeType": "image/png"}


def _embedded(uri: str, media_type: str, value: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": media_type, "text": value}}


def _notification(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}
