"""Checks the DPoP proof of a bound token where callers arrive, for the services behind the gateway."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

from libs.common.auth.dpop import KEY, ProofCache, Target, check_proof, refused
from libs.common.auth.jose import payload_of
from libs.common.auth.peers import EDGE
from libs.common.errors import MeshError
from libs.common.runtime.bounded_cache import BoundedCache
from services.gateway.transport.asgi_types import Scope

_MAX_CACHED = 10_000


class DpopCheck:
    """Reads the token's confirmation claim without verifying the token.

    The service behind the gateway verifies it, and refuses a token that was changed to demand less.
    """

    def __init__(self) -> None:
        self._used_proofs = ProofCache()
        # By the tokens' hashes: the tokens themselves would be secrets, and many megabytes.
        self._confirmations: BoundedCache[bytes, str] = BoundedCache(_MAX_CACHED)

    def check(self, scope: Scope, headers: Mapping[bytes, bytes], token: str) -> MeshError | None:
        """Return the error of the proof; None when it is valid, or when the token demands none."""
        key = hashlib.sha256(token.encode()).digest()
        confirmation = self._confirmations.get(key)
        if confirmation is None:
            confirmation = self._confirmations.put(key, confirmation_of(token))
        if not confirmation and headers.get(b"authorization", b"")[:5].lower() != b"dpop ":
            return None
        try:
            self._check(scope, headers, token, confirmation)
        except MeshError as error:
            return error
        return None

    def _check(self, scope: Scope, headers: Mapping[bytes, bytes], token: str, confirmation: str) -> None:
        if not confirmation.startswith(KEY):
            # A certificate proves nothing here: the connection is the edge's.
            raise refused("certificate" if confirmation else "confirmation")
        proofs = [value.decode("latin-1") for name, value in scope["headers"] if name == b"dpop"]
        if len(proofs) > 1:
            raise refused("several")
        from_edge = scope["state"].get("peer", "") == EDGE
        scheme = headers.get(b"x-forwarded-proto", b"").decode("latin-1") if from_edge else "https"
        authority = headers.get(b"host", b"").decode("latin-1")
        check_proof(
            proofs[0] if proofs else "",
            token=token,
            thumbprint=confirmation.removeprefix(KEY),
            target=Target("POST", scope["path"], scheme, authority),
            now=time.time(),
            used=self._used_proofs,
        )


def confirmation_of(token: str) -> str:
    """Return what the token's holder must prove; empty for a bearer token and for an unreadable one."""
    try:
        claim: Any = payload_of(token).get("cnf")
    except (MeshError, IndexError):
        return ""
    if claim is None or claim == {}:
        return ""
    thumbprint = claim.get("jkt") if isinstance(claim, dict) else None
    return f"{KEY}{thumbprint}" if isinstance(thumbprint, str) and thumbprint else "other"
