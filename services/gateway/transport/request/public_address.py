"""The address by which callers reach the mesh."""

from __future__ import annotations

import re
from collections.abc import Collection

from libs.common.auth.origins import origin_of, without_default_port
from libs.common.auth.peers import EDGE
from libs.common.errors import MeshError, Reason
from services.gateway.transport.asgi_types import Scope

_AUTHORITY = re.compile(rb"[A-Za-z0-9.-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")


def public_address(scope: Scope, public_origins: Collection[str]) -> str:
    """Return the public address of the mesh: the configured origin that the request came to, else the first one.

    Without configured origins it is the host of the request, and a malformed host raises INVALID_REQUEST.
    """
    asked, origins = _request_address(scope), tuple(public_origins)
    if not origins:
        if not asked:
            raise MeshError(Reason.INVALID_REQUEST, message="the host header is malformed")
        return asked
    try:
        here = origin_of(asked)
    except ValueError:
        here = ""
    return without_default_port(here if here in origins else origins[0])


def _request_address(scope: Scope) -> str:
    """Return the address that the request came to, as it says itself; empty if the host is malformed."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    authority = headers.get(b"host", b"")
    plain = scope["state"].get("peer", "") == EDGE and headers.get(b"x-forwarded-proto") == b"http"
    return f"{'http' if plain else 'https'}://{authority.decode()}" if _AUTHORITY.fullmatch(authority) else ""
