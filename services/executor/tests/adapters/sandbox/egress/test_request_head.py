"""Parsing of proxy request heads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.executor.adapters.sandbox.egress.request_head import (
    InvalidTargetError,
    MalformedError,
    parse_request_head,
)


def _head(*lines: str) -> bytes:
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def test_connect_takes_an_authority() -> None:
    head = parse_request_head(
        _head("CONNECT api.example.com:443 HTTP/1.1", "Host: whatever", "Proxy-Authorization: Basic c2VjcmV0")
    )
    assert (head.tunnel, head.destination.host, head.destination.port) == (True, "api.example.com", 443)
    assert head.forwarded == b""


def test_a_plain_request_is_rewritten_for_the_origin() -> None:
    head = parse_request_head(
        _head(
            "POST http://API.example.com/a/b?c=d HTTP/1.1",
            "host: elsewhere.example",
            "Proxy-Authorization: Basic c2VjcmV0",
            "Connection: keep-alive, x-secret",
            "Accept: */*",
            "Content-Length: 3",
        )
    )
    assert (head.tunnel, head.length, head.chunked) == (False, 3, False)
    lines = head.forwarded.split(b"\r\n")
    assert lines[:2] == [b"POST /a/b?c=d HTTP/1.1", b"Host: api.example.com"]
    assert b"Accept: */*" in lines
    assert lines[-3:] == [b"Connection: close", b"", b""]
    assert b"elsewhere" not in head.forwarded
    assert b"c2VjcmV0" not in head.forwarded


@pytest.mark.parametrize(
    ("target", "line", "host"),
    [
        ("http://a.example", b"GET / HTTP/1.1", b"a.example"),
        ("http://a.example?q", b"GET /?q HTTP/1.1", b"a.example"),
        ("HTTP://a.example:8080/x", b"GET /x HTTP/1.1", b"a.example:8080"),
        ("http://[2606:4700::1]/x", b"GET /x HTTP/1.1", b"[2606:4700::1]"),
    ],
)
def test_absolute_urls_are_split_into_destination_and_path(target: str, line: bytes, host: bytes) -> None:
    lines = parse_request_head(_head(f"GET {target} HTTP/1.1")).forwarded.split(b"\r\n")
    assert lines[:2] == [line, b"Host: " + host]


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /relative HTTP/1.1\r\n\r\n",
        b"GET https://a.example/ HTTP/1.1\r\n\r\n",
        b"GET ftp://a.example/ HTTP/1.1\r\n\r\n",
        b"GET http://a.example/#f HTTP/1.1\r\n\r\n",
        b"GET http://u:p@a.example/ HTTP/1.1\r\n\r\n",
        b"CONNECT u:p@a.example:443 HTTP/1.1\r\n\r\n",
        b"GET  http://a.example/ HTTP/1.1\r\n\r\n",
        b"GET http://a.example/ HTTP/2\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1 x\r\n\r\n",
        b"GET http://a.example/\x00 HTTP/1.1\r\n\r\n",
        b"GET http://b\xc3\xbccher.example/ HTTP/1.1\r\n\r\n",
        b"GE(T http://a.example/ HTTP/1.1\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nA: b\nInjected: c\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\nInjected: c\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nA: b\rInjected: c\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nA: b\x00c\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nA : b\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\n folded\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\n: no name\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST http://a.example/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST http://a.example/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"POST http://a.example/ HTTP/1.1\r\nContent-Length: 1, 2\r\n\r\n",
        b"POST http://a.example/ HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
        b"POST http://a.example/ HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST http://a.example/ HTTP/1.1\r\nContent-Length: 0x1\r\n\r\n",
        b"POST http://a.example/ HTTP/1.1\r\nContent-Length:\r\n\r\n",
        b"POST http://a.example/ HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST http://a.example/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"POST http://a.example/ HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
        b"POST http://a.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
        b"POST http://a.example/ HTTP/1.1\r\nTransfer-Encoding:\x0bchunked\r\n\r\n",
        b"CONNECT a.example:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n",
    ],
)
def test_ambiguous_heads_are_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_request_head(raw)


@pytest.mark.parametrize(
    "target", ["http://2130706433/", "http://0x7f.1/", "http://a..b/", "http:///x", "http://a%2eb/"]
)
def test_an_invalid_destination_is_an_invalid_target(target: str) -> None:
    with pytest.raises(InvalidTargetError):
        parse_request_head(_head(f"GET {target} HTTP/1.1"))


def test_connect_needs_a_port() -> None:
    with pytest.raises(InvalidTargetError):
        parse_request_head(_head("CONNECT a.example HTTP/1.1"))


@given(st.binary(max_size=200))
def test_any_bytes_parse_or_are_refused(raw: bytes) -> None:
    try:
        head = parse_request_head(b"GET http://a.example/ HTTP/1.1\r\nA: " + raw + b"\r\n\r\n")
    except (MalformedError, InvalidTargetError):
        return
    # Exactly one head is forwarded, without additional line ends.
    assert head.forwarded.count(b"\r\n\r\n") == 1
    assert head.forwarded.count(b"\n") == head.forwarded.count(b"\r\n")
