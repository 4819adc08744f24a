"""Which addresses the egress proxy may connect to."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.egress.public_addresses import PublicAddresses

INSIDE = [
    "0.0.0.0",  # noqa: S104
    "10.1.2.3",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.1.1",
    "169.254.169.254",
    "172.31.255.255",
    "192.0.0.1",
    "192.168.1.1",
    "198.18.0.1",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "255.255.255.255",
    "168.63.129.16",
    "100.100.100.200",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::10.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::8.8.8.8",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "fec0::1",
    "ff02::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:808:808::1",
    "3fff::1",
    "4000::1",
    "not an address",
    "",
    "2130706433",
    "0x7f.1",
]
WORLD = ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", INSIDE)
def test_non_public_addresses_are_refused(address: str) -> None:
    assert not PublicAddresses().is_allowed(address)


@pytest.mark.parametrize("address", WORLD)
def test_public_addresses_are_allowed(address: str) -> None:
    assert PublicAddresses().is_allowed(address)


def test_opened_networks_are_allowed_and_no_others() -> None:
    addresses = PublicAddresses([ip_network("10.1.0.0/16"), ip_network("fd00:7::/64")])
    assert addresses.is_allowed("10.1.2.3")
    assert addresses.is_allowed("::ffff:10.1.2.3")
    assert addresses.is_allowed("fd00:7::9")
    assert not addresses.is_allowed("10.2.0.1")
    assert not addresses.is_allowed("fd00:8::9")


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "169.254.170.23",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "168.63.129.16",
    ],
)
def test_metadata_services_are_never_allowed(address: str) -> None:
    assert not PublicAddresses([ip_network("0.0.0.0/0"), ip_network("::/0")]).is_allowed(address)


@given(st.ip_addresses())
def test_addresses_private_to_the_standard_library_are_refused(address: object) -> None:
    meant = ip_address(str(address))
    if meant.is_loopback or meant.is_link_local or meant.is_multicast or meant.is_unspecified:
        assert not PublicAddresses().is_allowed(str(address))
