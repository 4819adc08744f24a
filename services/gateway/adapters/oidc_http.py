"""Reads JSON documents of an OpenID provider over HTTPS: bounded in size and time, without redirects."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import parse_object

_TIMEOUT = 5.0
_MAX_BYTES = 256 * 1024


class OidcHttp:
    """The client. Redirects are not followed: only the configured issuer, and what it names itself, is trusted."""

    def __init__(self, ca: Path | None) -> None:
        """Trust these certificates; None means those of the system."""
        verify = ssl.create_default_context(cafile=str(ca) if ca else None)
        self._http = httpx.AsyncClient(verify=verify, timeout=_TIMEOUT, follow_redirects=False, trust_env=False)

    async def fetch(self, url: str, form: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the document at a URL, or the answer to a form, refusals included. Raises SERVICE_UNAVAILABLE."""
        method, headers = "GET" if form is None else "POST", {"accept": "application/json"}
        try:
            async with self._http.stream(method, url, data=form, headers=headers) as response:
                body = await _read(response)
            if response.status_code >= 500 or (form is None and response.status_code != 200):
                raise unavailable()
            return parse_object(body, max_bytes=_MAX_BYTES)
        except (httpx.HTTPError, MeshError):
            raise unavailable() from None

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


async def _read(response: httpx.Response) -> bytes:
    body = b""
    async for part in response.aiter_bytes():
        body += part
        if len(body) > _MAX_BYTES:
            raise unavailable()
    return body


def unavailable() -> MeshError:
    """Return the error of a provider that does not answer."""
    message = "the OpenID provider does not answer as it should; log in with a token, or try again later"
    return MeshError(Reason.SERVICE_UNAVAILABLE, message=message)
