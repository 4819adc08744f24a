"""Checks that the holder of a bound token has proven its key or certificate."""

from __future__ import annotations

import time
from typing import Any

from libs.common.auth.dpop import CERTIFICATE, KEY, ProofCache, Target, check_certificate, check_proof, refused
from libs.common.auth.identity import Identity
from libs.common.auth.peers import EDGE, SERVICES
from libs.common.call_context import Call

# The request's authority and scheme, as the edge reports them. The edge removes these headers from callers' requests.
AUTHORITY_HEADER = "x-toolmesh-authority"
SCHEME_HEADER = "x-forwarded-proto"


class HolderCheck:
    """Checks proofs where callers arrive. Services are trusted to have checked before they pass a token on."""

    def __init__(self) -> None:
        self._used_proofs = ProofCache()

    def check(self, call: Call, identity: Identity, context: Any) -> None:
        """Return if the caller may use a bound token. Raises TOKEN_PROOF_INVALID."""
        if call.peer in SERVICES:
            return
        bound = identity.confirmation
        if bound.startswith(KEY):
            self._check_key(call, bound.removeprefix(KEY), context)
        elif bound.startswith(CERTIFICATE):
            certificates = context.auth_context().get("x509_pem_cert") or [None]
            # Through the edge it is the edge's certificate, which proves nothing about the caller.
            check_certificate(None if call.peer == EDGE else certificates[0], bound.removeprefix(CERTIFICATE))
        else:
            raise refused("confirmation")

    def _check_key(self, call: Call, thumbprint: str, context: Any) -> None:
        metadata = [(name, str(value)) for name, value in context.invocation_metadata() or ()]
        proofs = [value for name, value in metadata if name == "dpop"]
        if len(proofs) > 1:
            raise refused("several")
        reported = dict(metadata) if call.peer == EDGE else {}
        target = Target("POST", call.method, reported.get(SCHEME_HEADER, ""), reported.get(AUTHORITY_HEADER, ""))
        check_proof(
            proofs[0] if proofs else "",
            token=call.token,
            thumbprint=thumbprint,
            target=target,
            now=time.time(),
            used=self._used_proofs,
        )
