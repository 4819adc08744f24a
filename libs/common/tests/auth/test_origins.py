"""Origins of URLs."""

from __future__ import annotations

import pytest

from libs.common.auth.origins import origin_of, parse_origins


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://mesh.example/rpc?x=1#y", "https://mesh.example:443"),
        ("HTTPS://MESH.example:443", "https://mesh.example:443"),
        ("http://127.0.0.1:8080/a", "http://127.0.0.1:8080"),
        ("http://[::1]/a", "http://[::1]:80"),
    ],
)
def test_an_origin_has_one_spelling(url: str, origin: str) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    "url", ["", "/rpc", "mesh.example", "ftp://a", "https://", "https://a@b/", "https://[::1", "https://a:99999"]
)
def test_what_has_no_origin_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        origin_of(url)


def test_a_list_of_origins_is_parsed() -> None:
    assert parse_origins("") == ()
    listed = "https://mesh.example, http://localhost:8080/, https://mesh.example:443"
    assert parse_origins(listed) == ("https://mesh.example:443", "http://localhost:8080")
    for text in ("mesh.example", "https://mesh.example/rpc", "https://mesh.example?x", "https://a,b"):
        with pytest.raises(ValueError):
            parse_origins(text)
