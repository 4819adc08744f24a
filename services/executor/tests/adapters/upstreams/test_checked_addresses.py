"""The addresses of servers that executors connect to."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network

import pytest

from libs.common.egress.public_addresses import PublicAddresses
from services.executor.adapters.upstreams.checked_addresses import checked_addresses
from services.executor.adapters.upstreams.mcp.transport import ServerLostError

ALLOWED = PublicAddresses([ip_network("10.1.0.0/16")])


async def found(*addresses: str, plaintext: bool = False) -> Sequence[str]:
    async def resolve(host: str) -> Sequence[str]:
        if not addresses:
            raise OSError
        return addresses

    return await checked_addresses("server.example", resolve, ALLOWED, plaintext=plaintext)


async def test_public_addresses_are_reached_with_tls_and_own_networks_in_any_way() -> None:
    assert await found("8.8.8.8", "2600::1") == ("8.8.8.8", "2600::1")
    assert await found("10.1.2.3", plaintext=True) == ("10.1.2.3",)
    assert len(await found(*(f"8.8.8.{number}" for number in range(9)))) == 4


@pytest.mark.parametrize(
    ("addresses", "plaintext"),
    [
        (("127.0.0.1",), False),
        (("10.2.0.1",), False),
        (("8.8.8.8", "169.254.169.254"), False),
        (("::ffff:127.0.0.1",), False),
        (("8.8.8.8",), True),
        ((), False),
    ],
)
async def test_one_forbidden_address_is_enough(addresses: tuple[str, ...], plaintext: bool) -> None:
    with pytest.raises(ServerLostError):
        await found(*addresses, plaintext=plaintext)
