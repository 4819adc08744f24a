"""Asks the token endpoint of an authorization server for an access token: one bounded request, without redirects."""

from __future__ import annotations

import asyncio
import base64
import re
from typing import Any
from urllib.parse import quote_plus, urlencode

import httpcore

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse_object
from libs.common.secret_store.secret import ClientAuth, GrantType, OAuthClient, SecretFormError, check_value
from libs.common.url_template import parse_url_template
from services.executor.adapters.runners.http.connections import (
    ForbiddenAddressError,
    HttpConnections,
    UnresolvedHostError,
)
from services.executor.adapters.secrets.oauth.access_token import (
    AccessToken,
    TokenRefusedError,
    TokenUnavailableError,
)

_SECONDS = 5.0
_MAX_ANSWER = 64 * 1024
_DEFAULT_LIFETIME, _LONGEST_LIFETIME = 300.0, 3600.0
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_TOKEN_TYPES = "urn:ietf:params:oauth:token-type:"  # noqa: S105
_ERROR = re.compile(r"[a-z_]{1,64}")
_OK, _SERVER_ERRORS, _RATE_LIMITED = 200, 500, 429


async def request_token(
    connections: HttpConnections, client: OAuthClient, client_secret: str, assertion: str
) -> AccessToken:
    """Return a token of the client; with an assertion, one for the subject that it names.

    Raises TokenRefusedError and TokenUnavailableError.
    """
    try:
        async with asyncio.timeout(_SECONDS):
            status, content = await _post(connections, client, client_secret, assertion)
    except ForbiddenAddressError as error:
        raise TokenUnavailableError(error.rule) from None
    except (UnresolvedHostError, TimeoutError, OSError) as error:
        raise TokenUnavailableError(type(error).__name__) from None
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
        # The text of a client's error may repeat the request.
        raise TokenUnavailableError(type(error).__name__) from None
    if status == _RATE_LIMITED or status >= _SERVER_ERRORS:
        raise TokenUnavailableError(f"http_{status}")
    document = _document(content)
    if status != _OK:
        code = document.get("error")
        raise TokenRefusedError(code if isinstance(code, str) and _ERROR.fullmatch(code) else f"http_{status}")
    return _token(document)


async def _post(
    connections: HttpConnections, client: OAuthClient, client_secret: str, assertion: str
) -> tuple[int, bytes]:
    url = parse_url_template(client.token_url)
    headers = [
        ("host", url.origin.partition("://")[2]),
        ("accept", "application/json"),
        ("accept-encoding", "identity"),
        ("user-agent", "toolmesh"),
        ("content-type", "application/x-www-form-urlencoded"),
    ]
    fields = _fields(client, assertion)
    if client.auth is ClientAuth.BASIC:
        # RFC 6749, 2.3.1: both parts are form-encoded first.
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client_secret)}"
        headers.append(("authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
    else:
        fields |= {"client_id": client.client_id, "client_secret": client_secret}
    body = urlencode(fields).encode()
    headers.append(("content-length", str(len(body))))
    target = httpcore.URL(scheme=url.scheme.encode(), host=url.host.encode(), port=url.port, target=url.path.encode())
    encoded = [(name.encode(), value.encode()) for name, value in headers]
    response = await connections.send(url.scheme, httpcore.Request("POST", target, headers=encoded, content=body))
    try:
        content = bytearray()
        async for chunk in response.aiter_stream():
            content += chunk
            if len(content) > _MAX_ANSWER:
                raise TokenUnavailableError("answer_too_large")
        return response.status, bytes(content)
    finally:
        await response.aclose()


def _fields(client: OAuthClient, assertion: str) -> dict[str, str]:
    wanted = {"scope": client.scope, "audience": client.audience}
    if client.grant is GrantType.CLIENT_CREDENTIALS:
        fields = {"grant_type": "client_credentials"}
    else:
        fields = {
            "grant_type": _EXCHANGE,
            "subject_token": assertion,
            "subject_token_type": f"{_TOKEN_TYPES}jwt",
            "requested_token_type": f"{_TOKEN_TYPES}access_token",
        }
    return fields | {name: value for name, value in wanted.items() if value}


def _document(content: bytes) -> dict[str, Any]:
    try:
        return parse_object(content)
    except MeshError:
        raise TokenUnavailableError("answer_not_json") from None


def _token(document: dict[str, Any]) -> AccessToken:
    value, kind, seconds = (document.get(key) for key in ("access_token", "token_type", "expires_in"))
    if not isinstance(kind, str) or kind.lower() not in ("bearer", "n_a"):
        raise TokenUnavailableError("token_not_bearer")
    usable = isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0
    lifetime = min(float(seconds), _LONGEST_LIFETIME) if usable else _DEFAULT_LIFETIME  # type: ignore[arg-type]
    try:
        return AccessToken(check_value(value if isinstance(value, str) else ""), lifetime)
    except SecretFormError:
        raise TokenUnavailableError("token_malformed") from None
