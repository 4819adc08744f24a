"""The form of a token exchange: what RFC 8693 asks for, and what is refused with which code."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from services.gateway.token_exchange.exchange_form import (
    ACCESS_TOKEN,
    FORM_TYPE,
    GRANT_TYPE,
    ExchangeForm,
    read_exchange_form,
)
from services.gateway.token_exchange.oauth_errors import OAuthError

ORIGINS = ("https://mesh.example:443",)
GOOD = {"grant_type": GRANT_TYPE, "subject_token": "a.b.c", "subject_token_type": ACCESS_TOKEN}


def read(body: str | bytes, content_type: str = FORM_TYPE) -> ExchangeForm:
    return read_exchange_form(body if isinstance(body, bytes) else body.encode(), content_type, "toolmesh", ORIGINS)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"subject_token_type": "urn:ietf:params:oauth:token-type:id_token"},
        {"subject_token_type": "urn:ietf:params:oauth:token-type:jwt"},
        {"requested_token_type": ACCESS_TOKEN, "audience": "toolmesh", "resource": "https://mesh.example/mcp"},
        # Without a value, a parameter counts as left out; one that is not known is ignored.
        {"requested_token_type": "", "actor_token": "", "scope": "", "client_id": "app", "other": "x"},
    ],
)
def test_a_request_of_the_standard_is_read(more: dict[str, str]) -> None:
    assert read(urlencode({**GOOD, **more})) == ExchangeForm("a.b.c")


def test_scopes_are_separated_by_spaces_and_media_types_may_have_parameters() -> None:
    body = urlencode({**GOOD, "scope": "tools:call  audit:read tools:call"})
    assert read(body, FORM_TYPE + "; charset=UTF-8").scopes == ("tools:call", "audit:read")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"grant_type": ""}, "invalid_request"),
        ({"grant_type": "client_credentials"}, "unsupported_grant_type"),
        ({"subject_token": ""}, "invalid_request"),
        ({"subject_token": "x" * 16_385}, "invalid_request"),
        ({"subject_token_type": ""}, "invalid_request"),
        ({"subject_token_type": "urn:ietf:params:oauth:token-type:saml2"}, "invalid_request"),
        ({"requested_token_type": "urn:ietf:params:oauth:token-type:refresh_token"}, "invalid_request"),
        ({"actor_token": "d.e.f"}, "invalid_request"),
        ({"audience": "elsewhere"}, "invalid_target"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
        ({"resource": "mcp"}, "invalid_target"),
        ({"resource": "https://mesh.example/mcp#part"}, "invalid_target"),
        ({"scope": "Tools:Call"}, "invalid_scope"),
        ({"scope": " ".join(f"s{n}" for n in range(65))}, "invalid_scope"),
    ],
)
def test_anything_else_is_refused_with_the_code_of_the_standard(changes: dict[str, str], code: str) -> None:
    with pytest.raises(OAuthError) as caught:
        read(urlencode({**GOOD, **changes}))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (urlencode(GOOD), "application/json"),
        (urlencode(GOOD) + "&subject_token=d.e.f", FORM_TYPE),
        (urlencode(GOOD).encode() + b"&x=\xff", FORM_TYPE),
        (urlencode(GOOD) + "&x=%ff", FORM_TYPE),
        ("&".join(f"a{n}=1" for n in range(40)), FORM_TYPE),
        ("", FORM_TYPE),
    ],
)
def test_a_body_that_is_no_such_form_is_an_invalid_request(body: str | bytes, content_type: str) -> None:
    with pytest.raises(OAuthError) as caught:
        read(body, content_type)
    assert caught.value.code == "invalid_request"


def test_a_target_may_be_named_several_times() -> None:
    body = urlencode(GOOD) + "&audience=toolmesh&audience=toolmesh"
    assert read(body).subject_token == "a.b.c"
    with pytest.raises(OAuthError) as caught:
        read(body + "&audience=elsewhere")
    assert caught.value.code == "invalid_target"
