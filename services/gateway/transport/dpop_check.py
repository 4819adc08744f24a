"""Whether the holder of a bound token proved to be it: checked here, where callers arrive, for the services behind."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

from libs.common.auth.dpop import KEY, ShownProofs, Target, check_proof, refused
from libs.common.auth.jose import payload_of
from libs.common.auth.peers import EDGE
from libs.common.errors import MeshError
from services.gateway.transport.asgi_types import Scope

_REMEMBERED = 10_000


class HolderCheck:
    """Reads what a token asks of its holder without verifying it: the service behind the gateway verifies it, and a token that
    was changed to ask less is refused there."""

    def __init__(self) -> None:
        self._shown = ShownProofs()
        # By the tokens' hashes: ten thousand tokens would be both a secret to keep and many megabytes.
        self._asked: dict[bytes, str] = {}

    def __call__(self, scope: Scope, headers: Mapping[bytes, bytes], token: str) -> MeshError | None:
        """Return what is wrong with the proof; None when nothing is, or when the token asks for none."""
        key = hashlib.sha256(token.encode()).digest()
        asked = self._asked.get(key)
        if asked is None:
            if len(self._asked) >= _REMEMBERED:
                self._asked.clear()
            asked = self._asked[key] = confirmation_of(token)
        if not asked and headers.get(b"authorization", b"")[:5].lower() != b"dpop ":
            return None
        try:
            self._check(scope, headers, token, asked)
        except MeshError as error:
            return error
        return None

    def _check(self, scope: Scope, headers: Mapping[bytes, bytes], token: str, asked: str) -> None:
        if not asked.startswith(KEY):
            # A certificate cannot be shown here: the connection is the edge's.
            raise refused("certificate" if asked else "confirmation")
        proofs = [value.decode("latin-1") for name, value in scope["headers"] if name == b"dpop"]
        if len(proofs) > 1:
            raise refused("several")
        told = scope["state"].get("peer", "") == EDGE
        scheme = headers.get(b"x-forwarded-proto", b"").decode("latin-1") if told else "https"
        authority = headers.get(b"host", b"").decode("latin-1")
        check_proof(
            proofs[0] if proofs else "",
            token=token,
            thumbprint=asked.removeprefix(KEY),
            target=Target("POST", scope["path"], scheme, authority),
            now=time.time(),
            shown=self._shown,
        )


def confirmation_of(token: str) -> str:
    """Return what a token asks its holder to prove; empty for a bearer token, and for what is no token at all."""
    try:
        asked: Any = payload_of(token).get("cnf")
    except (MeshError, IndexError):
        return ""
    if asked is None or asked == {}:
        return ""
    thumbprint = asked.get("jkt") if isinstance(asked, dict) else None
    return f"{KEY}{thumbprint}" if isinstance(thumbprint, str) and thumbprint else "other"
