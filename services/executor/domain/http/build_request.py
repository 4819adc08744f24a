"""Builds the request of an HTTP tool from its arguments. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from libs.common.errors import Violation
from libs.common.json.json_pointer import pointer_of
from libs.common.json.jsonio import dump
from libs.common.url_template import PathValueError
from services.executor.domain.errors import arguments_invalid
from services.executor.domain.http.endpoint import (
    BODILESS_METHODS,
    ArrayStyle,
    HttpEndpoint,
    HttpParameter,
    ParameterLocation,
)

MAX_BODY_BYTES = 4 << 20
MAX_TARGET = 8192
_MAX_HEADER = 4096
_SEPARATORS = {ArrayStyle.COMMA: ",", ArrayStyle.SPACE: "%20", ArrayStyle.PIPE: "%7C"}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request without its secrets."""

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = field(default=b"", repr=False)

    @property
    def target(self) -> str:
        """The path and the query."""
        return f"{self.path}?{self.query}" if self.query else self.path


def build_request(endpoint: HttpEndpoint, arguments: dict[str, Any], idempotency_key: str) -> HttpRequest:
    """Return the request of a call. Raises ARGUMENTS_INVALID with every argument that has no form in its place."""
    builder = _Builder()
    path = builder.path(endpoint, arguments)
    query = "&".join(builder.query(endpoint, arguments))
    headers = dict(builder.headers(endpoint, arguments))
    body = _body(endpoint, arguments)
    if body:
        headers["content-type"] = "application/json"
    if endpoint.idempotency_header and idempotency_key:
        headers[endpoint.idempotency_header.lower()] = quote(idempotency_key, safe="!#$&'*+-.^_`|~:/@ ")
    if len(path) + len(query) > MAX_TARGET:
        builder.refuse("", "http.target", f"make an address of more than {MAX_TARGET} characters")
    if len(body) > MAX_BODY_BYTES:
        builder.refuse("", "http.body", f"make a body of more than {MAX_BODY_BYTES} bytes")
    if builder.violations:
        raise arguments_invalid(builder.violations)
    return HttpRequest(endpoint.method, path, query, tuple(headers.items()), body)


class _Builder:
    """Collects the arguments that have no form in their place."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []

    def refuse(self, argument: str, rule: str, message: str) -> None:
        self.violations.append(Violation(pointer_of([argument]) if argument else "", rule, message))

    def path(self, endpoint: HttpEndpoint, arguments: dict[str, Any]) -> str:
        values = {name: _scalar(arguments.get(name)) or "" for name in endpoint.url.placeholders}
        try:
            return endpoint.url.expand(values)
        except PathValueError as error:
            self.refuse(error.name, "http.path", "must be a text or a number that is not empty, `.` or `..`")
            return ""

    def query(self, endpoint: HttpEndpoint, arguments: dict[str, Any]) -> Iterator[str]:
        for parameter, value in _given(endpoint, arguments, ParameterLocation.QUERY):
            name = quote(parameter.name, safe="")
            items = self._items(parameter, value)
            encoded = [quote(item, safe="") for item in items]
            if not isinstance(value, list) or parameter.array_style in (None, ArrayStyle.REPEATED):
                yield from (f"{name}={item}" for item in encoded)
            elif encoded:
                yield f"{name}={_SEPARATORS[parameter.array_style].join(encoded)}"

    def headers(self, endpoint: HttpEndpoint, arguments: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for parameter, value in _given(endpoint, arguments, ParameterLocation.HEADER):
            if isinstance(value, list) and parameter.array_style is not ArrayStyle.COMMA:
                self.refuse(parameter.argument, "http.header", "an array has no form in this header")
                continue
            text = ",".join(self._items(parameter, value))
            if len(text) > _MAX_HEADER or not text.isascii() or not text.isprintable():
                message = f"must be printable ASCII of at most {_MAX_HEADER} characters in a header"
                self.refuse(parameter.argument, "http.header", message)
                continue
            yield parameter.name.lower(), text

    def _items(self, parameter: HttpParameter, value: Any) -> list[str]:
        values = value if isinstance(value, list) else [value]
        items = [_scalar(item) for item in values]
        if None in items:
            message = f"must be a text, a number, a boolean or an array of these in a {parameter.place}"
            self.refuse(parameter.argument, f"http.{parameter.place}", message)
        return [item for item in items if item is not None]


def _given(
    endpoint: HttpEndpoint, arguments: dict[str, Any], place: ParameterLocation
) -> Iterator[tuple[HttpParameter, Any]]:
    for parameter in endpoint.parameters:
        # Null means that the parameter is not sent.
        if parameter.place is place and arguments.get(parameter.argument) is not None:
            yield parameter, arguments[parameter.argument]


def _body(endpoint: HttpEndpoint, arguments: dict[str, Any]) -> bytes:
    if endpoint.method in BODILESS_METHODS:
        return b""
    if endpoint.body_argument:
        return dump(arguments[endpoint.body_argument]) if endpoint.body_argument in arguments else b""
    placed = {*endpoint.url.placeholders, *(parameter.argument for parameter in endpoint.parameters)}
    members = {name: value for name, value in arguments.items() if name not in placed}
    return dump(members) if members else b""


def _scalar(value: Any) -> str | None:
    """Return a text, a number or a boolean as it is written in an address; None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return dump(value).decode()
    return None


def describe_request(endpoint: HttpEndpoint, request: HttpRequest) -> str:
    """Return what a call would send, for its preview: the method and the address without the query's values."""
    size = f" with a body of {len(request.body)} bytes" if request.body else ""
    return f"would send {request.method} {endpoint.url.origin}{request.path}{size}"
