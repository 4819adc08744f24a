"""Refuses requests of web pages that were not invited, and of names that were bound to this address (DNS rebinding)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from libs.common.auth.origins import origin_of, without_default_port
from libs.common.errors import MeshError, Reason


class OriginCheck:
    """Compares `Host` with the origins of the mesh, and `Origin` with those and with the pages that may call."""

    def __init__(self, public_origins: Collection[str], page_origins: Collection[str]) -> None:
        self._pages = frozenset((*public_origins, *page_origins))
        # Both spellings of a default port.
        self._hosts = frozenset(
            urlsplit(spelling).netloc
            for origin in public_origins
            for spelling in (origin, without_default_port(origin))
        )

    def check(self, headers: Mapping[bytes, bytes]) -> MeshError | None:
        """Return why the request is refused; None if it is not.

        Without configured origins every host is accepted, and no web page.
        """
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self._hosts and host not in self._hosts:
            return _refusal("the host header names no public origin of this mesh", "TOOLMESH_PUBLIC_ORIGINS")
        origin = headers.get(b"origin")
        if origin is None:
            return None
        try:
            known = origin_of(origin.decode("latin-1")) in self._pages
        except ValueError:
            known = False
        return None if known else _refusal("pages of this origin may not call", "TOOLMESH_MCP_PAGE_ORIGINS")


def _refusal(message: str, setting: str) -> MeshError:
    return MeshError(Reason.PEER_NOT_ALLOWED, message=message, metadata={"setting": setting})
