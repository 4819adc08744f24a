"""Checks the DPoP proof of a bound token where callers arrive, for the services behind the gateway."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from libs.common.auth.dpop import KEY, Target, check_proof, new_proof_cache, refused
from libs.common.auth.jose import payload_of
from libs.common.errors import MeshError
from libs.common.runtime.bounded_cache import BoundedCache
from services.gateway.transport.asgi_types import Scope

_MAX_CACHED = 10_000


class DpopCheck:
    """Reads the token's confirmation claim without verifying the token.

    The service behind the gateway verifies it, and refuses a token that was changed to demand less.
    """

    def __init__(self, public_origins: Collection[str]) -> None:
        """Proofs must name one of the origins; the request's own `Host` is whatever its sender wrote."""
        self._origins = public_origins
        self._used_proofs = new_proof_cache()
        # By the tokens' hashes: the tokens themselves would be secrets, and many megabytes.
        self._holders: BoundedCache[bytes, TokenHolder] = BoundedCache(_MAX_CACHED)

    def check(self, scope: Scope, headers: Mapping[bytes, bytes], token: str) -> MeshError | None:
        """Return the error of the proof; None when it is valid, or when the token demands none."""
        key = hashlib.sha256(token.encode()).digest()
        holder = self._holders.get(key) or self._holders.put(key, holder_of(token))
        if not holder.confirmation and headers.get(b"authorization", b"")[:5].lower() != b"dpop ":
            return None
        try:
            self._check(scope, token, holder)
        except MeshError as error:
            return error
        return None

    def _check(self, scope: Scope, token: str, holder: TokenHolder) -> None:
        if not holder.confirmation.startswith(KEY):
            # A certificate proves nothing here: the connection is the edge's.
            raise refused("certificate" if holder.confirmation else "confirmation")
        proofs = [value.decode("latin-1") for name, value in scope["headers"] if name == b"dpop"]
        if len(proofs) > 1:
            raise refused("several")
        check_proof(
            proofs[0] if proofs else "",
            token=token,
            subject=holder.subject,
            thumbprint=holder.confirmation.removeprefix(KEY),
            target=Target(scope["method"], scope["path"], self._origins),
            now=time.time(),
            used=self._used_proofs,
        )


class TokenHolder(NamedTuple):
    """The subject of a token, and what its holder must prove: empty for a bearer token and for an unreadable one."""

    subject: str = ""
    confirmation: str = ""


def holder_of(token: str) -> TokenHolder:
    """Return what a token says of its holder."""
    try:
        claims: Mapping[str, Any] = payload_of(token)
    except (MeshError, IndexError):
        return TokenHolder()
    claim = claims.get("cnf")
    if claim is None or claim == {}:
        return TokenHolder()
    thumbprint = claim.get("jkt") if isinstance(claim, dict) else None
    confirmation = f"{KEY}{thumbprint}" if isinstance(thumbprint, str) and thumbprint else "other"
    return TokenHolder(str(claims.get("sub", ""))[:512], confirmation)
