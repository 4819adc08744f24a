"""Connections to authorization servers. The client library (several MB) is imported with the first request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from libs.common.egress.public_addresses import Network
from libs.common.secret_store.secret import OAuthClient
from services.executor.adapters.secrets.oauth.access_token import AccessToken

if TYPE_CHECKING:
    from services.executor.adapters.runners.http.connections import HttpConnections


class TokenConnections:
    """Opens connections to public addresses and the networks that the deployment allows."""

    def __init__(self, internal: Iterable[Network]) -> None:
        self._internal = tuple(internal)
        self._connections: HttpConnections | None = None

    async def request(self, client: OAuthClient, client_secret: str, assertion: str) -> AccessToken:
        """Return a token. Raises TokenRefusedError and TokenUnavailableError."""
        from services.executor.adapters.runners.http.connections import HttpConnections
        from services.executor.adapters.secrets.oauth.token_endpoint import request_token

        if self._connections is None:
            self._connections = HttpConnections(self._internal)
        return await request_token(self._connections, client, client_secret, assertion)

    async def close(self) -> None:
        """Close the connections."""
        if self._connections is not None:
            await self._connections.close()
