"""Parses the head of a proxy request strictly, so that no other parser can read it differently (request smuggling)."""

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
_MAX_FIELDS = 100
# Hop-by-hop fields are not forwarded; `host` is rewritten.
_HOP_BY_HOP = frozenset(
    b"connection host keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer upgrade".split()
)


class MalformedError(ValueError):
    """The request breaks a rule. The message names the rule and never contains the request."""


class InvalidTargetError(ValueError):
    """A well-formed request for an invalid destination. The message is the destination in printable form."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A parsed request head: the destination and the head to forward."""

    destination: Destination
    tunnel: bool
    """True for CONNECT: the bytes that follow are forwarded unread."""
    forwarded: bytes = b""
    """The head to forward."""
    length: int = 0
    """Length of the body."""
    chunked: bool = False
    """True for a chunked body."""


def parse_request_head(raw: bytes) -> RequestHead:
    """Parse a head including its empty line. Raises MalformedError or InvalidTargetError."""
    lines = raw.removesuffix(b"\r\n\r\n").split(b"\r\n")
    # A line must not contain anything that another parser takes for a line end: that would split the request.
    request = _REQUEST_LINE.fullmatch(lines[0])
    if request is None:
        raise MalformedError("request line")
    fields = _fields(lines[1:])
    length, chunked = _framing(fields)
    method, target = request[1], request[2].decode("ascii")
    if method == b"CONNECT":
        if length or chunked:
            raise MalformedError("body of a tunnel")
        return RequestHead(_parse_target(target, None), tunnel=True)
    destination, path = _absolute(target)
    lead = b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (method, path.encode("ascii"), _host_field(destination))
    forwarded = b"".join(b"%b: %b\r\n" % field for field in fields if field[0].lower() not in _HOP_BY_HOP)
    return RequestHead(destination, False, lead + forwarded + b"Connection: close\r\n\r\n", length, chunked)


def _fields(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    if len(lines) > _MAX_FIELDS:
        raise MalformedError("number of fields")
    matches = [_FIELD.fullmatch(line) for line in lines]
    fields = [(match[1], match[2] or b"") for match in matches if match is not None]
    if len(fields) != len(lines):
        raise MalformedError("field")
    return fields


def _framing(fields: list[tuple[bytes, bytes]]) -> tuple[int, bool]:
    """Return the length of the body and whether it is chunked. Ambiguous framing is refused (request smuggling)."""
    lowered = [(name.lower(), value) for name, value in fields]
    lengths = [value for name, value in lowered if name == b"content-length"]
    codings = [value for name, value in lowered if name == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1 or sum(name == b"host" for name, _ in lowered) > 1:
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
    return _parse_target(authority, 80), path if path.startswith("/") else "/" + path


def _parse_target(authority: str, default_port: int | None) -> Destination:
    # Credentials in a URL would appear wherever the destination is shown; a header field can carry them.
    if "@" in authority:
        raise MalformedError("user information")
    try:
        return parse_destination(authority, default_port)
    except InvalidDestinationError as error:
        raise InvalidTargetError(str(error)) from None


def _host_field(destination: Destination) -> bytes:
    text = str(destination)
    return text.removesuffix(":80").encode("ascii") if destination.port == 80 else text.encode("ascii")
