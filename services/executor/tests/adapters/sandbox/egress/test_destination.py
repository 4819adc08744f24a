"""Parsing of destinations and the check against the allowed hosts and ports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.executor.adapters.sandbox.egress.destination import (
    HOST_NOT_ALLOWED,
    PORT_NOT_ALLOWED,
    AllowedDestinations,
    Destination,
    InvalidDestinationError,
    parse_destination,
    printable,
)


@pytest.mark.parametrize(
    ("written", "host", "port"),
    [
        ("api.example.com:443", "api.example.com", 443),
        ("API.Example.COM:443", "api.example.com", 443),
        ("api.example.com.:443", "api.example.com", 443),
        ("api.example.com", "api.example.com", 80),
        ("xn--bcher-kva.example:8443", "xn--bcher-kva.example", 8443),
        ("_acme.example.com", "_acme.example.com", 80),
        ("192.0.2.7:80", "192.0.2.7", 80),
        ("[2001:DB8:0:0::1]:443", "2001:db8::1", 443),
        ("[::ffff:127.0.0.1]:80", "::ffff:7f00:1", 80),
        ("localhost:65535", "localhost", 65535),
    ],
)
def test_a_destination_has_one_canonical_form(written: str, host: str, port: int) -> None:
    found = parse_destination(written, 80)
    # Python releases differ in how they write the last part of such an address.
    assert (found.host.replace("::ffff:127.0.0.1", "::ffff:7f00:1"), found.port) == (host, port)


@pytest.mark.parametrize(
    "written",
    [
        "2130706433:80",
        "0177.0.0.1:80",
        "127.0.0.01:80",
        "0x7f.0.0.1:80",
        "0x7f000001",
        "127.1:80",
        "127.0.0.1.5",
        "api.example.com.1",
        "evil.com@api.example.com:443",
        "user:secret@api.example.com",
        "api.example.com:",
        "api.example.com:0",
        "api.example.com:0443",
        "api.example.com:65536",
        "api.example.com:+80",
        "api.example.com:80:80",
        "api.example.com :80",
        " api.example.com",
        "api..example.com",
        ".example.com",
        "api.example.com..",
        "-api.example.com",
        "api%2eexample.com",
        "api.example.com%00.evil.com",
        "bücher.example",
        "ⓔxample.com",
        "api。example.com",
        "１２７.0.0.1",
        "a" * 64 + ".com",
        "a." * 127 + "com",
        "::1",
        "[::1",
        "[::1]80",
        "[fe80::1%25eth0]:80",
        "[fe80::1%eth0]:80",
        "[127.0.0.1]:80",
        "[example.com]:80",
        "",
        ":80",
        "a/b",
        "a\\b",
        "a?b",
        "a\r\nHost: b",
    ],
)
def test_other_forms_are_invalid_destinations(written: str) -> None:
    with pytest.raises(InvalidDestinationError):
        parse_destination(written, 80)


def test_a_port_is_required_without_a_default() -> None:
    with pytest.raises(InvalidDestinationError):
        parse_destination("api.example.com")


@given(st.text(max_size=40))
def test_any_text_parses_or_is_invalid(written: str) -> None:
    try:
        found = parse_destination(written, 80)
    except InvalidDestinationError as error:
        said = str(error)
    else:
        # The canonical form is stable.
        assert parse_destination(str(found), 80) == found
        return
    assert said.isascii()
    assert said.isprintable()


@pytest.mark.parametrize(
    ("host", "refusal"),
    [
        ("api.example.com", ""),
        ("example.com", HOST_NOT_ALLOWED),
        ("a.api.example.com", HOST_NOT_ALLOWED),
        ("one.wide.example", ""),
        ("wide.example", HOST_NOT_ALLOWED),
        ("two.one.wide.example", HOST_NOT_ALLOWED),
        ("evilwide.example", HOST_NOT_ALLOWED),
        ("wide.example.evil.com", HOST_NOT_ALLOWED),
        ("192.0.2.7", ""),
        ("10.0.0.1", HOST_NOT_ALLOWED),
    ],
)
def test_only_listed_hosts_are_allowed(host: str, refusal: str) -> None:
    allowed = AllowedDestinations(["API.example.com.", "*.wide.example", "192.0.2.7", "*.0.0.1"], [443])
    assert allowed.refusal_reason(Destination(host, 443)) == refusal


def test_only_listed_ports_are_allowed() -> None:
    allowed = AllowedDestinations(["api.example.com"], [443, 8443])
    assert allowed.refusal_reason(Destination("api.example.com", 8443)) == ""
    assert allowed.refusal_reason(Destination("api.example.com", 80)) == PORT_NOT_ALLOWED
    assert AllowedDestinations([], [443]).refusal_reason(Destination("api.example.com", 443)) == HOST_NOT_ALLOWED


def test_printable_text_is_short_and_ascii() -> None:
    assert printable("a\r\nSet-Cookie: b\x1b[31m" + "é" * 200).isprintable()
    assert len(printable("x" * 5000)) < 100
