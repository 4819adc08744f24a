"""The head of a request to the way out, read so strictly that no two readers could read it differently. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from services.executor.adapters.sandbox.egress.destination import (
    Destination,
    InvalidDestinationError,
    parse_destination,
)

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/1\.[01]")
_FIELD = re.compile(
    rb"(" + _TOKEN + rb"):[ \t]*([\x21-\x7e\x80-\xff](?:[\x20-\x7e\x80-\xff\t]*[\x21-\x7e\x80-\xff])?)?[ \t]*"
)
_LENGTH = re.compile(rb"[0-9]{1,18}")
_MOST_FIELDS = 100
# Meant for the next hop and nobody after it, so they end here; `host` is written anew.
_NOT_PASSED_ON = frozenset(
    b"connection host keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer upgrade".split()
)


class MalformedError(ValueError):
    """Not a request that is understood here. Its words say which rule it broke, never what it held."""


class InvalidTargetError(ValueError):
    """A well-formed request for a place that cannot be one. Its words are what was asked for, made fit to be shown."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """One request: where to, and what to send there before its body."""

    destination: Destination
    tunnel: bool
    """True for CONNECT: whatever follows is between the two ends."""
    forwarded: bytes = b""
    """The head as it is passed on."""
    length: int = 0
    """The bytes of the body that follow."""
    chunked: bool = False
    """True if the body says itself where it ends."""


def parse_request_head(raw: bytes) -> RequestHead:
    """Read a head, its empty line included. Raises MalformedError or UnreachableError."""
    lines = raw.removesuffix(b"\r\n\r\n").split(b"\r\n")
    # Nothing that ends a line elsewhere may stand inside one: that is how one request becomes two.
    request = _REQUEST_LINE.fullmatch(lines[0])
    if request is None:
        raise MalformedError("request line")
    fields = _fields(lines[1:])
    length, chunked = _framing(fields)
    method, target = request[1], request[2].decode("ascii")
    if method == b"CONNECT":
        if length or chunked:
            raise MalformedError("body of a tunnel")
        return RequestHead(_place(target, None), tunnel=True)
    destination, path = _absolute(target)
    lead = b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (method, path.encode("ascii"), _host_field(destination))
    kept = b"".join(b"%b: %b\r\n" % field for field in fields if field[0].lower() not in _NOT_PASSED_ON)
    return RequestHead(destination, False, lead + kept + b"Connection: close\r\n\r\n", length, chunked)


def _fields(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    if len(lines) > _MOST_FIELDS:
        raise MalformedError("number of fields")
    found = [_FIELD.fullmatch(line) for line in lines]
    fields = [(match[1], match[2] or b"") for match in found if match is not None]
    if len(fields) != len(lines):
        raise MalformedError("field")
    return fields


def _framing(fields: list[tuple[bytes, bytes]]) -> tuple[int, bool]:
    """Say where the body ends. Two answers to that are none: whoever reads the other one would see another request in it."""
    said = [(name.lower(), value) for name, value in fields]
    lengths = [value for name, value in said if name == b"content-length"]
    codings = [value for name, value in said if name == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1 or sum(name == b"host" for name, _ in said) > 1:
        raise MalformedError("framing")
    if codings and codings[0].lower() != b"chunked":
        raise MalformedError("transfer coding")
    if lengths and not _LENGTH.fullmatch(lengths[0]):
        raise MalformedError("content length")
    return int(lengths[0]) if lengths else 0, bool(codings)


def _absolute(target: str) -> tuple[Destination, str]:
    scheme, _, rest = target.partition("://")
    if scheme.lower() != "http" or "#" in rest:
        raise MalformedError("target")
    authority = re.split(r"[/?]", rest, maxsplit=1)[0]
    path = rest[len(authority) :]
    return _place(authority, 80), path if path.startswith("/") else "/" + path


def _place(authority: str, default_port: int | None) -> Destination:
    # Who puts a secret there has it shown wherever the place is; a field carries it as well.
    if "@" in authority:
        raise MalformedError("user information")
    try:
        return parse_destination(authority, default_port)
    except InvalidDestinationError as error:
        raise InvalidTargetError(str(error)) from None


def _host_field(destination: Destination) -> bytes:
    text = str(destination)
    return text.removesuffix(":80").encode("ascii") if destination.port == 80 else text.encode("ascii")
