"""The resources of the suite."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.conformance.upstream.request import RequestError

# A red pixel as PNG, and a moment of silence as WAV.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SILENCE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
_TEMPLATE = re.compile(r"test://template/([^/]+)/data")


def _resource(uri: str, name: str, media_type: str) -> dict[str, Any]:
    return {"uri": uri, "name": name, "description": f"The {name}.", "mimeType": media_type}


RESOURCES = [
    _resource("test://static-text", "static text", "text/plain"),
    _resource("test://static-binary", "static image", "image/png"),
    _resource("test://watched-resource", "watched resource", "text/plain"),
]
TEMPLATES = [
    {
        "uriTemplate": "test://template/{id}/data",
        "name": "data by id",
        "description": "Data of an id.",
        "mimeType": "application/json",
    }
]


def read_resource(uri: str) -> dict[str, Any]:
    """Return the contents of a resource."""
    if uri == "test://static-text":
        return _contents(uri, "text/plain", text="This is the content of the static text resource.")
    if uri == "test://static-binary":
        return _contents(uri, "image/png", blob=PIXEL)
    if uri == "test://watched-resource":
        return _contents(uri, "text/plain", text="Watched resource content.")
    if match := _TEMPLATE.fullmatch(uri):
        data = {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
        return _contents(uri, "application/json", text=json.dumps(data))
    raise RequestError(-32602, "Resource not found", {"uri": uri})


def _contents(uri: str, media_type: str, **content: str) -> dict[str, Any]:
    return {"contents": [{"uri": uri, "mimeType": media_type, **content}]}
