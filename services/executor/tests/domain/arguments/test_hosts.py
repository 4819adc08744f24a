"""The one rule of which hosts are named, that URLs among arguments and the way out of a sandbox share."""

from __future__ import annotations

import pytest

from services.executor.domain.arguments.hosts import Hosts

NAMED = Hosts(["API.example.com.", "*.wide.example", "*.0.0.1", "192.0.2.7"])


@pytest.mark.parametrize("host", ["api.example.com", "a.wide.example", "192.0.2.7"])
def test_what_is_named_is_in(host: str) -> None:
    assert host in NAMED


@pytest.mark.parametrize(
    "host",
    [
        "",
        "example.com",
        "x.api.example.com",
        "wide.example",
        "a.b.wide.example",
        "notwide.example",
        "127.0.0.1",
        "*.wide.example.evil",
    ],
)
def test_what_is_not_named_is_not(host: str) -> None:
    assert host not in NAMED


def test_nothing_named_is_nothing_reached() -> None:
    assert "api.example.com" not in Hosts(())
