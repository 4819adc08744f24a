"""Parses the URL of an HTTP tool, whose path may hold placeholders. Pure.

Scheme, host and port are literal, so that no argument decides where a request goes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

_PORTS = {"https": 443, "http": 80}
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9._-]{1,253})(?::(?P<port>[1-9][0-9]{0,4}))?(?P<path>/[^?#\\\s]*)?",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]{0,127})\}")
_LITERAL = re.compile(r"([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")
_DOTS = frozenset({"", ".", ".."})


class UrlTemplateError(ValueError):
    """The text is not an absolute URL with placeholders in its path only."""


class PathValueError(ValueError):
    """A value makes a path segment empty, `.` or `..`. `name` is the placeholder."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True)
class UrlTemplate:
    """A URL in its parts. `path` has `{name}` for each placeholder."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def placeholders(self) -> tuple[str, ...]:
        """The names in the path, in order."""
        return tuple(_PLACEHOLDER.findall(self.path))

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return origin_of(self.scheme, self.host, self.port)

    def expand(self, values: Mapping[str, str]) -> str:
        """Return the path with the values in it, each encoded. Raises PathValueError."""
        return "/".join(_expand_segment(segment, values) for segment in self.path.split("/"))


def parse_url_template(text: str) -> UrlTemplate:
    """Parse an absolute URL. Raises UrlTemplateError: also for a query, a fragment, credentials and `..`."""
    match = _URL.fullmatch(text)
    if match is None:
        raise UrlTemplateError("is not https://host/path, with placeholders such as {id} in its path only")
    scheme, path = match["scheme"].lower(), match["path"] or "/"
    literal = _PLACEHOLDER.sub("", path)
    if not _LITERAL.fullmatch(literal) or any(part in (".", "..") for part in path.split("/")):
        raise UrlTemplateError("has a path with a character or a segment that is not allowed")
    names = _PLACEHOLDER.findall(path)
    port = int(match["port"] or _PORTS[scheme])
    if len(set(names)) != len(names) or port > 65535:
        raise UrlTemplateError("has a placeholder twice, or no valid port")
    return UrlTemplate(scheme, match["host"].lower().removesuffix("."), port, path)


def origin_of(scheme: str, host: str, port: int) -> str:
    """Return `https://host`, with the port where it is not the scheme's own."""
    return f"{scheme}://{host}" if port == _PORTS[scheme] else f"{scheme}://{host}:{port}"


def _expand_segment(segment: str, values: Mapping[str, str]) -> str:
    names = _PLACEHOLDER.findall(segment)
    if not names:
        return segment
    expanded = _PLACEHOLDER.sub(lambda match: quote(values[match[1]], safe=""), segment)
    if expanded in _DOTS:
        raise PathValueError(names[0])
    return expanded
