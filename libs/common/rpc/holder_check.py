"""Checks that the holder of a bound token has proven its key or certificate."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from libs.common.auth.dpop import (
    CERTIFICATE,
    KEY,
    Target,
    certificate_thumbprint,
    check_certificate,
    check_proof,
    new_proof_cache,
    refused,
)
from libs.common.auth.identity import Identity
from libs.common.auth.peers import EDGE, SERVICES
from libs.common.call_context import Call


def peer_thumbprint(call: Call) -> str:
    """Return the RFC 8705 thumbprint of the certificate that the peer presented; empty outside of a connection."""
    certificates = call.auth_context().get("x509_pem_cert") if call.auth_context is not None else None
    return certificate_thumbprint(certificates[0]) if certificates else ""


class HolderCheck:
    """Checks proofs where callers arrive. Services are trusted to have checked before they pass a token on."""

    def __init__(self, public_origins: Collection[str]) -> None:
        """Proofs of callers who come through the edge must name one of the origins."""
        self._origins = public_origins
        self._used_proofs = new_proof_cache()

    def check(self, call: Call, identity: Identity, context: Any) -> None:
        """Return if the caller may use a bound token. Raises TOKEN_PROOF_INVALID."""
        if call.peer in SERVICES:
            return
        bound = identity.confirmation
        if bound.startswith(KEY):
            self._check_key(call, identity, context)
        elif bound.startswith(CERTIFICATE):
            certificates = context.auth_context().get("x509_pem_cert") or [None]
            # Through the edge it is the edge's certificate, which proves nothing about the caller.
            check_certificate(None if call.peer == EDGE else certificates[0], bound.removeprefix(CERTIFICATE))
        else:
            raise refused("confirmation")

    def _check_key(self, call: Call, identity: Identity, context: Any) -> None:
        proofs = [str(value) for name, value in context.invocation_metadata() or () if name == "dpop"]
        if len(proofs) > 1:
            raise refused("several")
        check_proof(
            proofs[0] if proofs else "",
            token=call.token,
            subject=identity.subject,
            thumbprint=identity.confirmation.removeprefix(KEY),
            target=Target("POST", call.method, self._origins if call.peer == EDGE else None),
            now=time.time(),
            used=self._used_proofs,
        )
