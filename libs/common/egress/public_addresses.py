"""Decides whether an IP address is public (not private, loopback, link-local or a metadata service)."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# A literal list, because the answers of the standard library differ between Python releases.
_NON_PUBLIC_IPV4 = tuple(
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
# The only IPv6 range for global unicast addresses.
_GLOBAL_IPV6 = IPv6Network("2000::/3")
_NON_PUBLIC_IPV6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, Teredo and ORCHID among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which embeds an IPv4 address
        "3fff::/20",  # documentation
    )
)
_MAPPED = IPv6Network("::ffff:0:0/96")
_TRANSLATED = IPv6Network("64:ff9b::/96")
# Cloud metadata services. Some are outside all ranges above, and an internal network that is opened may contain one.
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
    """Decides which addresses outgoing connections may go to.

    Public addresses are allowed. Others are allowed only in the `opened` networks. Metadata services are never allowed.
    """

    def __init__(self, opened: Iterable[Network] = ()) -> None:
        self._opened = tuple(opened)

    def is_allowed(self, text: str) -> bool:
        """Return whether the address may be connected to; False for text that is not an address."""
        try:
            address = _unmap(ip_address(text))
        except ValueError:
            return False
        if address in _METADATA:
            return False
        return _is_public(address) or any(address in network for network in self._opened)


def _unmap(address: Address) -> Address:
    """Return the IPv4 address inside a mapped or translated IPv6 address."""
    if isinstance(address, IPv6Address) and (address in _MAPPED or address in _TRANSLATED):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NON_PUBLIC_IPV4)
    # A zone id makes an address local to this machine.
    return (
        address.scope_id is None
        and address in _GLOBAL_IPV6
        and not any(address in network for network in _NON_PUBLIC_IPV6)
    )
