"""The configured OpenID provider: authorization code flow with PKCE (RFC 7636, OpenID Connect Core 3.1)."""

from __future__ import annotations

import hashlib
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from libs.common.errors import MeshError, Reason

Fetch = Callable[[str, Mapping[str, str] | None], Awaitable[dict[str, Any]]]
"""Returns the JSON document at a URL, or the answer to a form that is sent there."""
# How long the provider's description is used before it is read again.
_CONFIGURATION_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """The provider, and the console as its client. Without a secret the console is a public client."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    scopes: str = "openid"


class LoginAttempt(NamedTuple):
    """The secrets of one login, which the browser keeps sealed meanwhile."""

    state: str
    nonce: str
    verifier: str


class OidcProvider:
    """Sends browsers to the provider and redeems the codes that they bring back."""

    def __init__(self, settings: OidcSettings, fetch: Fetch) -> None:
        self._settings, self._fetch = settings, fetch
        self._configuration: dict[str, Any] = {}
        self._read_again = 0.0

    @property
    def host(self) -> str:
        """The provider's host, for people."""
        return urlsplit(self._settings.issuer).hostname or ""

    def new_attempt(self) -> LoginAttempt:
        """Return the secrets of a new login."""
        return LoginAttempt(secrets.token_hex(16), secrets.token_hex(16), secrets.token_urlsafe(48))

    async def authorization_url(self, attempt: LoginAttempt, redirect_uri: str) -> str:
        """Return where the browser is sent. Raises SERVICE_UNAVAILABLE."""
        challenge = urlsafe_b64encode(hashlib.sha256(attempt.verifier.encode()).digest()).decode().rstrip("=")
        parameters = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._settings.scopes,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        endpoint = (await self._configured())["authorization_endpoint"]
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(parameters)}"

    def check_answer(self, query: Mapping[str, str]) -> None:
        """Return if the browser brings a code of this provider. Raises UNAUTHENTICATED."""
        if "error" in query or not query.get("code"):
            raise MeshError(Reason.UNAUTHENTICATED, message="the provider did not log you in; log in again")
        if query.get("iss", self._settings.issuer) != self._settings.issuer:
            raise MeshError(Reason.UNAUTHENTICATED, message="the answer is of another provider; log in again")

    async def redeem_code(self, code: str, verifier: str, redirect_uri: str) -> str:
        """Return the id token for a code. Raises UNAUTHENTICATED for a code that the provider refuses."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self._settings.client_id,
            "code_verifier": verifier,
        }
        if self._settings.client_secret:
            form["client_secret"] = self._settings.client_secret
        answer = await self._fetch((await self._configured())["token_endpoint"], form)
        if not isinstance(token := answer.get("id_token"), str):
            raise MeshError(Reason.UNAUTHENTICATED, message="the provider did not accept this login; log in again")
        return token

    async def _configured(self) -> dict[str, Any]:
        if time.monotonic() < self._read_again:
            return self._configuration
        issuer = self._settings.issuer
        found = await self._fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration", None)
        endpoints = (found.get("authorization_endpoint"), found.get("token_endpoint"))
        if found.get("issuer") != issuer or not all(_is_https(endpoint) for endpoint in endpoints):
            message = "the OpenID provider does not describe itself as it should; log in with a token"
            raise MeshError(Reason.SERVICE_UNAVAILABLE, message=message)
        self._configuration, self._read_again = found, time.monotonic() + _CONFIGURATION_SECONDS
        return found


def _is_https(endpoint: Any) -> bool:
    return (
        isinstance(endpoint, str) and endpoint.isascii() and endpoint.isprintable() and endpoint.startswith("https://")
    )
