"""The system resolver in threads of its own."""

from __future__ import annotations

import pytest

from libs.common.egress.resolver import SystemResolver


async def test_system_resolver_resolves_in_its_own_threads() -> None:
    resolver = SystemResolver()
    assert "127.0.0.1" in await resolver.resolve("localhost")
    with pytest.raises(OSError):
        await resolver.resolve("no-such-name.invalid")
    resolver.close()
