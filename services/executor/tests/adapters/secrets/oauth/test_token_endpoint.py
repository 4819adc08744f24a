"""One request to a token endpoint: what is sent, what is understood, and what is refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from ipaddress import ip_network

import pytest

from libs.common.secret_store.secret import ClientAuth, GrantType, OAuthClient
from services.executor.adapters.runners.http.connections import HttpConnections
from services.executor.adapters.secrets.oauth.access_token import (
    AccessToken,
    TokenRefusedError,
    TokenUnavailableError,
)
from services.executor.adapters.secrets.oauth.token_endpoint import request_token
from services.executor.tests.adapters.secrets.oauth.authorization_server import (
    EXCHANGE,
    AuthorizationServer,
    running_server,
)


@pytest.fixture
def server() -> Iterator[AuthorizationServer]:
    with running_server() as running:
        yield running


@pytest.fixture
async def connections() -> AsyncIterator[HttpConnections]:
    opened = HttpConnections([ip_network("127.0.0.0/8")])
    yield opened
    await opened.close()


@pytest.mark.parametrize(("auth", "shown"), [(ClientAuth.BASIC, "Basic"), (ClientAuth.BODY, "body")])
async def test_a_client_gets_a_token_for_its_secret(
    server: AuthorizationServer, connections: HttpConnections, auth: ClientAuth, shown: str
) -> None:
    client = OAuthClient(server.url, "mesh client", scope="read write", audience="crm", auth=auth)
    token = await request_token(connections, client, server.secret, "")
    assert token == AccessToken("token-1-for-client", 60.0)
    assert server.asked == [{"by": shown, "grant_type": "client_credentials", "scope": "read write", "audience": "crm"}]
    assert token.value not in repr(token)


async def test_an_assertion_is_exchanged(server: AuthorizationServer, connections: HttpConnections) -> None:
    client = OAuthClient(server.url, "mesh client", GrantType.TOKEN_EXCHANGE)
    assert (await request_token(connections, client, server.secret, "alice")).value == "token-1-for-alice"
    [asked] = server.asked
    assert (asked["grant_type"], asked["subject_token_type"]) == (EXCHANGE, "urn:ietf:params:oauth:token-type:jwt")


@pytest.mark.parametrize(
    ("status", "content", "code"),
    [
        (400, b'{"error": "invalid_grant"}', "invalid_grant"),
        (401, b'{"error": "the secret is s3cret"}', "http_401"),
        (403, b"{}", "http_403"),
        (302, b"{}", "http_302"),
    ],
)
async def test_a_refusal_has_a_code_and_nothing_that_the_server_wrote(
    server: AuthorizationServer, connections: HttpConnections, status: int, content: bytes, code: str
) -> None:
    server.answer = (status, content)
    with running_server() as elsewhere:
        server.location = elsewhere.url
        with pytest.raises(TokenRefusedError) as caught:
            await request_token(connections, OAuthClient(server.url, "mesh client"), "s3cret", "")
        assert elsewhere.asked == []
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (500, "{}"),
        (429, "{}"),
        (200, "{]"),
        (200, "[]"),
        (200, json.dumps({"access_token": "x", "token_type": "mac"})),
        (200, json.dumps({"access_token": "a\r\nb: c", "token_type": "bearer"})),
        (200, json.dumps({"access_token": "", "token_type": "bearer"})),
        (200, json.dumps({"access_token": "x" * 9_000, "token_type": "bearer"})),
    ],
)
async def test_an_answer_that_is_no_token_is_none(
    server: AuthorizationServer, connections: HttpConnections, status: int, document: str
) -> None:
    server.answer = (status, document.encode())
    with pytest.raises(TokenUnavailableError):
        await request_token(connections, OAuthClient(server.url, "mesh client"), server.secret, "")


async def test_an_answer_without_end_is_not_read(server: AuthorizationServer, connections: HttpConnections) -> None:
    server.answer = (200, b" " * 200_000 + b'{"access_token": "x", "token_type": "bearer"}')
    with pytest.raises(TokenUnavailableError) as caught:
        await request_token(connections, OAuthClient(server.url, "mesh client"), server.secret, "")
    assert caught.value.cause == "answer_too_large"


@pytest.mark.parametrize("lifetime", [-1, 0, True, "60", None, 1e20])
async def test_a_strange_lifetime_is_a_short_one(
    server: AuthorizationServer, connections: HttpConnections, lifetime: object
) -> None:
    server.lifetime = lifetime
    token = await request_token(connections, OAuthClient(server.url, "mesh client"), server.secret, "")
    assert 0 < token.lifetime <= 3600


async def test_an_address_of_another_network_is_not_asked(server: AuthorizationServer) -> None:
    outside = HttpConnections()
    with pytest.raises(TokenUnavailableError) as caught:
        await request_token(outside, OAuthClient(server.url, "mesh client"), server.secret, "")
    await outside.close()
    assert caught.value.cause == "address_not_public"
    assert server.asked == []
