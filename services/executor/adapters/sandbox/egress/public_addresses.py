"""Which addresses of the Internet are nobody's inside. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Written out rather than asked of the standard library, whose answers differ from one release to the next.
_INSIDE_FOUR = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
# Of version six only this is handed out for the whole world to use; all else is somebody's inside, or nobody's.
_WORLD_SIX = IPv6Network("2000::/3")
_INSIDE_SIX = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, Teredo and ORCHID among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which hides an address of version four
        "3fff::/20",  # documentation
    )
)
_MAPPED = IPv6Network("::ffff:0:0/96")
_TRANSLATED = IPv6Network("64:ff9b::/96")
# Where clouds tell a machine its secrets. Some are outside every range above, and a range that a deployment opens may hold one.
_METADATA = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "100.100.100.200",
        "168.63.129.16",
        "fd00:ec2::23",
        "fd00:ec2::254",
        "fd20:ce::254",
    )
)


class PublicAddresses:
    """Tells addresses that a confined process may be led to from those it may not.

    Addresses of the world are open. Of all others only those in the `opened` networks are, and metadata services never are,
    whatever was opened.
    """

    def __init__(self, opened: Iterable[Network] = ()) -> None:
        self._opened = tuple(opened)

    def is_allowed(self, text: str) -> bool:
        """True if the address may be connected to; false for what is not an address."""
        try:
            address = _meant(ip_address(text))
        except ValueError:
            return False
        if address in _METADATA:
            return False
        return _of_the_world(address) or any(address in network for network in self._opened)


def _meant(address: Address) -> Address:
    """Return the address of version four that one of version six stands for, where it does."""
    if isinstance(address, IPv6Address) and (address in _MAPPED or address in _TRANSLATED):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _of_the_world(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _INSIDE_FOUR)
    # A zone makes an address mean something on this machine only.
    return address.scope_id is None and address in _WORLD_SIX and not any(address in each for each in _INSIDE_SIX)
