"""Parses the destination of an egress request and checks it against the allowed hosts and ports."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from services.executor.domain.arguments.hosts import NUMERIC_LABEL, Hosts

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_MAX_NAME_LENGTH = 253
_PRINTABLE_LENGTH = 80

NAME_INVALID = "name_invalid"
HOST_NOT_ALLOWED = "host_not_allowed"
PORT_NOT_ALLOWED = "port_not_allowed"


class InvalidDestinationError(ValueError):
    """The text is not a host and port in canonical form."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A host and a port. The host is canonical: lower case, ASCII, no trailing dot, addresses in standard notation."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_destination(authority: str, default_port: int | None = None) -> Destination:
    """Parse `host`, `host:port` or `[v6]:port`. Raises InvalidDestinationError for anything else: user information,
    spaces, escapes, non-ASCII names (use `xn--…`), and addresses as one number, in octal, in hexadecimal or
    shortened."""
    if authority.startswith("["):
        host, closed, rest = authority[1:].partition("]")
        if not closed:
            raise InvalidDestinationError(printable(authority))
        return Destination(_parse_ipv6(host), _parse_port(rest, default_port))
    host, colon, port = authority.partition(":")
    return Destination(_parse_host(host), _parse_port(colon + port, default_port))


def printable(text: str) -> str:
    """Return untrusted text shortened and in printable ASCII."""
    return "".join(letter if letter.isprintable() and letter.isascii() else "?" for letter in text[:_PRINTABLE_LENGTH])


class AllowedDestinations:
    """The hosts and ports that one plan allows."""

    def __init__(self, hosts: Iterable[str], ports: Iterable[int]) -> None:
        self._hosts, self._ports = Hosts(hosts), frozenset(ports)

    def refusal_reason(self, destination: Destination) -> str:
        """Return why a destination is not allowed; empty if it is."""
        if destination.host not in self._hosts:
            return HOST_NOT_ALLOWED
        return "" if destination.port in self._ports else PORT_NOT_ALLOWED


def _parse_host(text: str) -> str:
    host = text.lower().removesuffix(".") if text.isascii() else ""
    labels = host.split(".")
    if len(host) > _MAX_NAME_LENGTH or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidDestinationError(printable(text))
    if NUMERIC_LABEL.fullmatch(labels[-1]):
        return _parse_ipv4(host)
    return host


def _parse_ipv4(host: str) -> str:
    try:
        return str(IPv4Address(host))
    except AddressValueError:
        raise InvalidDestinationError(printable(host)) from None


def _parse_ipv6(text: str) -> str:
    try:
        # A zone id names a local interface.
        if "%" in text:
            raise InvalidDestinationError(printable(text))
        return str(IPv6Address(text))
    except AddressValueError:
        raise InvalidDestinationError(printable(text)) from None


def _parse_port(written: str, default: int | None) -> int:
    """Parse `:443`; an empty text means the default."""
    if not written and default is not None:
        return default
    number = written[1:]
    if not written.startswith(":") or not _PORT.fullmatch(number) or int(number) > 65535:
        raise InvalidDestinationError("port " + printable(written))
    return int(number)
