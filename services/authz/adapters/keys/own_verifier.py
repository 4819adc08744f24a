"""The issuer's own view of tokens: the same verification as everywhere, over keys that are never older than the ring's."""

from __future__ import annotations

from libs.common.auth.identity import Identity
from libs.common.auth.revocations import RevocationView
from libs.common.auth.tokens import TokenVerifier
from services.authz.domain.ports import KeyRing


class OwnKeysVerifier(TokenVerifier):
    """Verifies against the issuer's key ring. A key that left the ring takes its tokens with it, remembered ones included."""

    def __init__(self, keys: KeyRing, *, issuer: str, audience: str, revocations: RevocationView | None = None) -> None:
        # No second opinion: there is nobody else to ask.
        super().__init__(keys.jwks, issuer=issuer, audience=audience, revocations=revocations)
        self._ring = keys
        self._seen = b""

    def known(self, token: str) -> Identity | None:
        """Nothing is known without a look at the ring, where that would take waiting."""
        jwks = self._ring.glance()
        return super().known(token) if jwks is not None and jwks == self._seen else None

    async def verify(self, token: str) -> Identity:
        jwks = await self._ring.jwks()
        if jwks != self._seen:
            await self.refresh()
            self._seen = jwks
        return await super().verify(token)
