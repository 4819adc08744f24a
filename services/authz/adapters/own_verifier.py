"""The issuer's own view of tokens: the same verification as everywhere, over keys that are never older than the ring's."""

from __future__ import annotations

from libs.common.auth.identity import Identity
from libs.common.auth.tokens import TokenVerifier
from services.authz.domain.ports import KeyRing


class OwnKeysVerifier(TokenVerifier):
    """Verifies against the issuer's key ring. A key that left the ring takes its tokens with it, remembered ones included."""

    def __init__(self, keys: KeyRing, *, issuer: str, audience: str) -> None:
        super().__init__(keys.jwks, issuer=issuer, audience=audience)
        self._ring = keys
        self._seen = b""

    async def verify(self, token: str) -> Identity:
        jwks = await self._ring.jwks()
        if jwks != self._seen:
            await self.refresh()
            self._seen = jwks
        return await super().verify(token)
