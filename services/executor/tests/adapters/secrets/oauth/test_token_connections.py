"""Connections to authorization servers, opened with the first request."""

from __future__ import annotations

from ipaddress import ip_network

from libs.common.secret_store.secret import OAuthClient
from services.executor.adapters.secrets.oauth.token_connections import TokenConnections
from services.executor.tests.adapters.secrets.oauth.authorization_server import running_server


async def test_a_token_is_asked_for_and_the_connections_close() -> None:
    connections = TokenConnections([ip_network("127.0.0.0/8")])
    await connections.close()
    with running_server() as server:
        token = await connections.request(OAuthClient(server.url, "mesh client"), server.secret, "")
        assert token.value == "token-1-for-client"
        await connections.close()
