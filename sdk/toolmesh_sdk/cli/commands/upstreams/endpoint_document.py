"""Describes one HTTP endpoint as an OpenAPI document of one operation. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

METHODS = ("get", "head", "post", "put", "patch", "delete")
_BODILESS = frozenset({"get", "head", "delete"})
_PLACEHOLDER = re.compile(r"\{([^{}/]+)\}")
_TEXT = {"type": "string"}


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """What the operator says about an endpoint."""

    url: str
    method: str = "get"
    name: str = ""
    description: str = ""
    arguments: dict[str, Any] | None = None
    """The JSON Schema of the arguments; None if all are texts."""
    result: dict[str, Any] | None = None
    query: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    secret_headers: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def path(self) -> str:
        return self.url.removeprefix(self.origin) or "/"

    @property
    def native_name(self) -> str:
        """The name of the operation, by default of the method and the last literal part of the path."""
        literal = [part for part in self.path.split("/") if part and "{" not in part]
        return self.name or "_".join([self.method, *literal[-1:]])


def endpoint_document(options: EndpointOptions) -> dict[str, Any]:
    """Return the document. Raises ValueError for an address or a method that is none."""
    if options.method not in METHODS:
        raise ValueError(f"the method {options.method} is none of {', '.join(METHODS)}")
    if not options.url.startswith(("https://", "http://")) or "?" in options.url or "#" in options.url:
        raise ValueError(f"{options.url} is no address such as https://api.example.com/orders/{{order_id}}")
    schema = options.arguments or {}
    properties = dict(schema.get("properties") or {})
    for name in (*options.query, *options.headers):
        properties.setdefault(name, _TEXT)
    required = {str(name) for name in schema.get("required") or ()}
    parameters = _take_parameters(options, properties, required)
    operation: dict[str, Any] = {
        "operationId": options.native_name,
        "description": options.description or f"{options.method.upper()} {options.path} of {options.origin}",
        "parameters": parameters,
        "responses": {"200": _response(options.result)},
        "security": [{name: [] for name in options.secret_headers}] if options.secret_headers else [],
    }
    if options.method not in _BODILESS and (properties or options.arguments is not None):
        body = {"type": "object", "properties": properties, "required": sorted(required & properties.keys())}
        body |= {key: schema[key] for key in ("additionalProperties",) if key in schema}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": urlsplit(options.url).hostname or "", "version": "1"},
        "servers": [{"url": options.origin}],
        "paths": {options.path: {options.method: operation}},
        "components": {"securitySchemes": {name: _scheme(name) for name in options.secret_headers}},
        # Schemas of the operation refer to them from the root.
        **{key: schema[key] for key in ("$defs", "definitions") if key in schema},
    }


def _take_parameters(options: EndpointOptions, properties: dict[str, Any], required: set[str]) -> list[dict[str, Any]]:
    """Move the properties that are parameters out of those of the body, and return them."""
    places = dict.fromkeys(_PLACEHOLDER.findall(options.path), "path")
    places |= dict.fromkeys(options.query, "query") | dict.fromkeys(options.headers, "header")
    if options.method in _BODILESS:
        places = dict.fromkeys(properties, "query") | places
    return [
        {
            "name": name,
            "in": place,
            "required": place == "path" or name in required,
            "schema": properties.pop(name, _TEXT),
        }
        for name, place in places.items()
    ]


def _response(schema: dict[str, Any] | None) -> dict[str, Any]:
    """Return a described response. Without a schema any JSON is a result."""
    return {"description": "The result.", "content": {"application/json": {"schema": schema or {}}}}


def _scheme(header: str) -> dict[str, Any]:
    if header == "authorization":
        return {"type": "http", "scheme": "bearer"}
    return {"type": "apiKey", "in": "header", "name": header}
