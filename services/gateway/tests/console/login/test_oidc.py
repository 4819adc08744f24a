"""The OpenID provider: what it is asked, and which of its answers are believed."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from libs.common.errors import MeshError, Reason
from services.gateway.adapters.oidc_http import OidcHttp
from services.gateway.console.login.oidc import OidcProvider, OidcSettings

ISSUER = "https://login.example.com"
REDIRECT = "https://mesh.example/console/login/callback"
GOOD = {"issuer": ISSUER, "authorization_endpoint": f"{ISSUER}/auth?a=1", "token_endpoint": f"{ISSUER}/token"}


class Answers:
    """Answers for the provider, and keeps what it was asked."""

    def __init__(self, description: Mapping[str, Any], token: Mapping[str, Any] | None = None) -> None:
        self.description, self.token = dict(description), dict(token or {})
        self.asked: list[tuple[str, Mapping[str, str] | None]] = []

    async def fetch(self, url: str, form: Mapping[str, str] | None) -> dict[str, Any]:
        self.asked.append((url, form))
        return self.description if form is None else self.token


def provider(answers: Answers, **settings: str) -> OidcProvider:
    return OidcProvider(OidcSettings(ISSUER, "console", **settings), answers.fetch)


async def refusal(call: Any) -> Reason:
    with pytest.raises(MeshError) as caught:
        await call
    return caught.value.reason


async def test_a_login_asks_for_a_code_with_a_challenge() -> None:
    answers = Answers(GOOD, {"id_token": "a.b.c"})
    asked = provider(answers, client_secret="s3cret", scopes="openid groups")
    attempt = asked.new_attempt()
    assert attempt != asked.new_attempt()
    url = await asked.authorization_url(attempt, REDIRECT)
    parameters = dict(parse_qsl(urlsplit(url).query))
    challenge = urlsafe_b64encode(hashlib.sha256(attempt.verifier.encode()).digest()).decode().rstrip("=")
    assert (parameters["code_challenge"], parameters["code_challenge_method"]) == (challenge, "S256")
    assert (parameters["state"], parameters["nonce"]) == (attempt.state, attempt.nonce)
    assert (parameters["a"], parameters["scope"], parameters["redirect_uri"]) == ("1", "openid groups", REDIRECT)
    assert attempt.verifier not in url
    assert await asked.redeem_code("c1", attempt.verifier, REDIRECT) == "a.b.c"
    _, form = answers.asked[-1]
    assert form is not None
    assert (form["code"], form["code_verifier"], form["client_secret"]) == ("c1", attempt.verifier, "s3cret")
    # Described once: the second request is for the token.
    assert [url for url, _ in answers.asked] == [f"{ISSUER}/.well-known/openid-configuration", f"{ISSUER}/token"]
    assert "s3cret" not in repr(OidcSettings(ISSUER, "console", "s3cret"))


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://login.example.com/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": None},
        {"authorization_endpoint": "https://login.example.com/\r\nx: y"},
    ],
)
async def test_a_provider_that_describes_itself_wrongly_is_not_used(change: dict[str, Any]) -> None:
    asked = provider(Answers({**GOOD, **change}))
    assert await refusal(asked.authorization_url(asked.new_attempt(), REDIRECT)) is Reason.SERVICE_UNAVAILABLE


@pytest.mark.parametrize(
    "query", [{}, {"error": "access_denied", "code": "c"}, {"code": "c", "iss": "https://evil.example"}]
)
def test_an_answer_without_a_code_of_this_provider_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(MeshError) as caught:
        provider(Answers(GOOD)).check_answer(query)
    assert caught.value.reason is Reason.UNAUTHENTICATED


@pytest.mark.parametrize("token", [{"error": "invalid_grant"}, {"id_token": 7}, {"access_token": "a.b.c"}])
async def test_a_refused_code_is_no_login(token: dict[str, Any]) -> None:
    assert await refusal(provider(Answers(GOOD, token)).redeem_code("c", "v", REDIRECT)) is Reason.UNAUTHENTICATED


async def test_a_provider_that_cannot_be_reached_is_unavailable() -> None:
    http = OidcHttp(None)
    assert await refusal(http.fetch("https://127.0.0.1:9/keys")) is Reason.SERVICE_UNAVAILABLE
    await http.close()
