"""Where a confined process says it wants to go, and whether its policy names that place. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from services.executor.domain.arguments.hosts import NUMERIC_LABEL, Hosts

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_LONGEST = 253
_SHOWN = 80

NAME_INVALID = "name_invalid"
HOST_NOT_ALLOWED = "host_not_allowed"
PORT_NOT_ALLOWED = "port_not_allowed"


class InvalidDestinationError(ValueError):
    """A text that names no host in the one way in which hosts are named here."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A host and a port. The host is in its only form: lower case, no trailing dot, ASCII, an address as the standard writes it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_destination(authority: str, default_port: int | None = None) -> Destination:
    """Read `host`, `host:port` or `[v6]:port`. Raises NotAPlaceError for all else: user information, spaces, escapes, letters
    beyond ASCII (a name has one spelling, `xn--…`), and addresses as one number, in octal, in hexadecimal or shortened."""
    if authority.startswith("["):
        host, closed, rest = authority[1:].partition("]")
        if not closed:
            raise InvalidDestinationError(printable(authority))
        return Destination(_version_six(host), _port(rest, default_port))
    host, colon, port = authority.partition(":")
    return Destination(_host(host), _port(colon + port, default_port))


def printable(text: str) -> str:
    """Return what somebody else wrote so that it can be shown: short, and in printable ASCII."""
    return "".join(letter if letter.isprintable() and letter.isascii() else "?" for letter in text[:_SHOWN])


class AllowedDestinations:
    """The places that one plan names: hosts, and ports."""

    def __init__(self, hosts: Iterable[str], ports: Iterable[int]) -> None:
        self._hosts, self._ports = Hosts(hosts), frozenset(ports)

    def refusal(self, destination: Destination) -> str:
        """Say why a place is out of reach; empty if it is named."""
        if destination.host not in self._hosts:
            return HOST_NOT_ALLOWED
        return "" if destination.port in self._ports else PORT_NOT_ALLOWED


def _host(text: str) -> str:
    host = text.lower().removesuffix(".") if text.isascii() else ""
    labels = host.split(".")
    if len(host) > _LONGEST or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidDestinationError(printable(text))
    if NUMERIC_LABEL.fullmatch(labels[-1]):
        return _version_four(host)
    return host


def _version_four(host: str) -> str:
    try:
        return str(IPv4Address(host))
    except AddressValueError:
        raise InvalidDestinationError(printable(host)) from None


def _version_six(text: str) -> str:
    try:
        # A zone names a wire of this machine, not a place.
        if "%" in text:
            raise InvalidDestinationError(printable(text))
        return str(IPv6Address(text))
    except AddressValueError:
        raise InvalidDestinationError(printable(text)) from None


def _port(written: str, default: int | None) -> int:
    """Read `:443`, or take the default where nothing is written."""
    if not written and default is not None:
        return default
    number = written[1:]
    if not written.startswith(":") or not _PORT.fullmatch(number) or int(number) > 65535:
        raise InvalidDestinationError("port " + printable(written))
    return int(number)
