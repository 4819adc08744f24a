"""URLs of HTTP tools: where a request goes is literal, and an argument stays within its segment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.url_template import PathValueError, UrlTemplateError, parse_url_template


def test_a_url_has_parts_and_placeholders() -> None:
    url = parse_url_template("https://API.example.com:8443/v1/{order_id}/lines/{line}:cancel")
    assert (url.scheme, url.host, url.port) == ("https", "api.example.com", 8443)
    assert url.placeholders == ("order_id", "line")
    assert url.origin == "https://api.example.com:8443"
    assert url.expand({"order_id": "a/b?c#d", "line": "7"}) == "/v1/a%2Fb%3Fc%23d/lines/7:cancel"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "api.example.com/x",
        "ftp://example.com/",
        "https:///x",
        "https://user@example.com/",
        "https://{host}/x",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://example.com/x?y={z}",
        "https://example.com/x#y",
        "https://example.com/../x",
        "https://example.com/a b",
        "https://example.com/{a}/{a}",
        "https://example.com/{a",
        "https://example.com/{}",
        "https://example.com/%zz",
        "https://example.com\\@evil.example/",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UrlTemplateError):
        parse_url_template(text)


@given(st.text(max_size=20))
def test_a_value_never_leaves_its_segment(value: str) -> None:
    url = parse_url_template("https://example.com/a/{x}/b")
    try:
        value.encode()
    except UnicodeEncodeError:
        return
    if value in ("", ".", ".."):
        with pytest.raises(PathValueError):
            url.expand({"x": value})
        return
    path = url.expand({"x": value})
    assert path.count("/") == 3
    assert not {"?", "#", " ", "\\"} & set(path)
