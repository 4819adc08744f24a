"""Whether the holder of a bound token proved to be it. Asked only about tokens that are bound."""

from __future__ import annotations

import time
from typing import Any

from libs.common.auth.dpop import CERTIFICATE, KEY, ShownProofs, Target, check_certificate, check_proof, refused
from libs.common.auth.identity import Identity
from libs.common.auth.peers import EDGE, SERVICES
from libs.common.call_context import Call

# What the edge says of the request as its caller saw it. The edge takes these away from callers, and nobody else is asked.
AUTHORITY_HEADER = "x-toolmesh-authority"
SCHEME_HEADER = "x-forwarded-proto"


class HolderCheck:
    """Checks proofs where callers arrive. A service of the mesh is believed to have checked before it passed a token on."""

    def __init__(self) -> None:
        self._shown = ShownProofs()

    def __call__(self, call: Call, identity: Identity, context: Any) -> None:
        """Return if the caller may use a bound token. Raises TOKEN_PROOF_INVALID."""
        if call.peer in SERVICES:
            return
        bound = identity.confirmation
        if bound.startswith(KEY):
            self._check_key(call, bound.removeprefix(KEY), context)
        elif bound.startswith(CERTIFICATE):
            certificates = context.auth_context().get("x509_pem_cert") or [None]
            # Through the edge it would be the edge's own certificate, which proves nothing about the caller.
            check_certificate(None if call.peer == EDGE else certificates[0], bound.removeprefix(CERTIFICATE))
        else:
            raise refused("confirmation")

    def _check_key(self, call: Call, thumbprint: str, context: Any) -> None:
        metadata = [(name, str(value)) for name, value in context.invocation_metadata() or ()]
        proofs = [value for name, value in metadata if name == "dpop"]
        if len(proofs) > 1:
            raise refused("several")
        told = dict(metadata) if call.peer == EDGE else {}
        target = Target("POST", call.method, told.get(SCHEME_HEADER, ""), told.get(AUTHORITY_HEADER, ""))
        check_proof(
            proofs[0] if proofs else "",
            token=call.token,
            thumbprint=thumbprint,
            target=target,
            now=time.time(),
            shown=self._shown,
        )
