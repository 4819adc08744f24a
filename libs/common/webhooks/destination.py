"""Decides where webhooks may be sent. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from msgspec import Struct

from libs.common.egress.public_addresses import PublicAddresses

_PORTS = {"https": 443, "http": 80}
_MAX_URL = 2048
# Printable ASCII without the characters that URL parsers disagree about.
_PLAIN = re.compile(r"[!-\[\]_a-z~]+")
_EVERYWHERE = (ip_network("0.0.0.0/0"), ip_network("::/0"))


class ForbiddenUrlError(Exception):
    """A webhook may not be sent to this URL. `rule` names the rule it breaks."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


class Destination(Struct, frozen=True):
    """A URL in its parts. Requests are built from these, so that no second parser reads the URL differently."""

    scheme: str
    host: str
    port: int
    target: str
    """The path and the query."""

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = _bracketed(self.host)
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def url_at(self, address: str) -> str:
        """Return the URL with an address in the place of the host."""
        return f"{self.scheme}://{_bracketed(address)}:{self.port}{self.target}"


class WebhookDestinations:
    """Allows HTTPS to public addresses.

    `internal_hosts` names hosts of the deployment itself: they may have other addresses, and plain HTTP. Metadata
    services are never allowed.
    """

    def __init__(self, internal_hosts: Collection[str] = ()) -> None:
        self._internal = frozenset(host.lower() for host in internal_hosts)
        self._public, self._all = PublicAddresses(), PublicAddresses(_EVERYWHERE)

    def parse(self, url: str) -> Destination:
        """Return the parts of a URL. Raises ForbiddenUrlError."""
        if len(url) > _MAX_URL or not _PLAIN.fullmatch(url.lower()):
            raise ForbiddenUrlError("not_a_url")
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").removesuffix("."), parts.port
        except ValueError:
            raise ForbiddenUrlError("not_a_url") from None
        if not host or port == 0 or parts.scheme not in _PORTS:
            raise ForbiddenUrlError("not_a_url")
        if parts.username is not None or parts.password is not None or parts.fragment:
            raise ForbiddenUrlError("credentials_or_fragment")
        if parts.scheme != "https" and host not in self._internal:
            raise ForbiddenUrlError("not_https")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        destination = Destination(parts.scheme, host, port or _PORTS[parts.scheme], target)
        if _is_address(host):
            self.check_addresses(destination, [host])
        return destination

    def check_addresses(self, destination: Destination, addresses: Sequence[str]) -> None:
        """Check what a host resolved to. Raises ForbiddenUrlError where even one address is not allowed."""
        rule = self._all if destination.host in self._internal else self._public
        if not all(rule.is_allowed(address) for address in addresses):
            raise ForbiddenUrlError("address_not_public")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
