"""Requests from arguments: each argument in its place, encoded, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import parse
from libs.common.url_template import parse_url_template
from services.executor.domain.http.build_request import build_request, describe_request
from services.executor.domain.http.endpoint import ArrayStyle, HttpEndpoint, HttpParameter, ParameterLocation


def endpoint(method: str = "POST", path: str = "/orders/{id}", **changes: Any) -> HttpEndpoint:
    return HttpEndpoint(method, parse_url_template(f"https://api.example.com{path}"), **changes)


def query(argument: str, style: ArrayStyle | None = None, name: str = "") -> HttpParameter:
    return HttpParameter(argument, ParameterLocation.QUERY, name or argument, style)


def test_every_argument_travels_in_its_place() -> None:
    wanted = endpoint(
        parameters=(
            query("limit"),
            query("q", name="search[text]"),
            HttpParameter("lang", ParameterLocation.HEADER, "Accept-Language"),
        )
    )
    request = build_request(
        wanted, {"id": "a/b", "limit": 5, "q": "x&y=z", "lang": "de", "note": "n", "big": 2**63}, ""
    )
    assert request.target == "/orders/a%2Fb?limit=5&search%5Btext%5D=x%26y%3Dz"
    assert dict(request.headers) == {"accept-language": "de", "content-type": "application/json"}
    assert parse(request.body) == {"note": "n", "big": 2**63}


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        (None, "tag=a%2Cb&tag=2"),
        (ArrayStyle.REPEATED, "tag=a%2Cb&tag=2"),
        (ArrayStyle.COMMA, "tag=a%2Cb,2"),
        (ArrayStyle.SPACE, "tag=a%2Cb%202"),
        (ArrayStyle.PIPE, "tag=a%2Cb%7C2"),
    ],
)
def test_an_array_is_written_in_the_declared_style(style: ArrayStyle | None, expected: str) -> None:
    request = build_request(endpoint("GET", "/orders", parameters=(query("tag", style),)), {"tag": ["a,b", 2]}, "")
    assert request.query == expected


def test_null_and_an_empty_list_send_no_parameter() -> None:
    wanted = endpoint("GET", "/x", parameters=(query("a"), query("b"), query("c", ArrayStyle.COMMA)))
    assert build_request(wanted, {"a": None, "b": [], "c": []}, "").target == "/x"


def test_booleans_and_numbers_are_written_as_json_writes_them() -> None:
    wanted = endpoint("GET", "/x/{n}", parameters=(query("flag"), query("f")))
    assert build_request(wanted, {"n": 7, "flag": True, "f": 1e21}, "").target == "/x/7?flag=true&f=1e%2B21"


def test_a_named_argument_is_the_whole_body() -> None:
    request = build_request(endpoint("PUT", body_argument="lines"), {"id": "1", "lines": [1, 2]}, "")
    assert parse(request.body) == [1, 2]


def test_the_idempotency_key_is_passed_on_where_the_endpoint_takes_one() -> None:
    keyed = endpoint(idempotency_header="Idempotency-Key")
    assert dict(build_request(keyed, {"id": "1"}, "k 1\n").headers) == {"idempotency-key": "k 1%0A"}
    assert not build_request(keyed, {"id": "1"}, "").headers
    assert not build_request(endpoint(), {"id": "1"}, "k").headers


@pytest.mark.parametrize(
    ("wanted", "arguments", "path"),
    [
        (endpoint(), {"id": ".."}, "/id"),
        (endpoint(), {"id": ""}, "/id"),
        (endpoint(), {"id": {"a": 1}}, "/id"),
        (endpoint("GET", "/x", parameters=(query("q"),)), {"q": {"a": 1}}, "/q"),
        (endpoint("GET", "/x", parameters=(query("q"),)), {"q": [[1]]}, "/q"),
        (
            endpoint("GET", "/x", parameters=(HttpParameter("h", ParameterLocation.HEADER, "X-H"),)),
            {"h": "a\r\nb: c"},
            "/h",
        ),
        (endpoint("GET", "/x", parameters=(HttpParameter("h", ParameterLocation.HEADER, "X-H"),)), {"h": "ä"}, "/h"),
        (endpoint("GET", "/x", parameters=(HttpParameter("h", ParameterLocation.HEADER, "X-H"),)), {"h": [1]}, "/h"),
        (endpoint("GET", "/x", parameters=(query("q"),)), {"q": "x" * 9000}, ""),
        (endpoint("POST", "/x"), {"big": "x" * (5 << 20)}, ""),
    ],
)
def test_an_argument_without_a_form_is_refused_with_its_place(
    wanted: HttpEndpoint, arguments: dict[str, Any], path: str
) -> None:
    with pytest.raises(MeshError) as caught:
        build_request(wanted, arguments, "")
    assert caught.value.reason is Reason.ARGUMENTS_INVALID
    assert [violation.path for violation in caught.value.violations] == [path]


def test_a_preview_names_the_request_without_the_query() -> None:
    wanted = endpoint("DELETE", parameters=(query("token"),))
    request = build_request(wanted, {"id": "7", "token": "t0ps3cret"}, "")
    assert "t0ps3cret" not in describe_request(wanted, request)
    assert "DELETE https://api.example.com/orders/7" in describe_request(wanted, request)


@pytest.mark.parametrize(
    ("method", "header", "key", "repeatable"),
    [
        ("GET", "", "", True),
        ("PUT", "", "", True),
        ("DELETE", "", "", True),
        ("POST", "", "k", False),
        ("POST", "Idempotency-Key", "", False),
        ("POST", "Idempotency-Key", "k", True),
        ("PATCH", "", "k", False),
    ],
)
def test_a_request_is_repeatable_by_its_method_or_its_key(method: str, header: str, key: str, repeatable: bool) -> None:
    assert endpoint(method, idempotency_header=header).is_repeatable(key) is repeatable
