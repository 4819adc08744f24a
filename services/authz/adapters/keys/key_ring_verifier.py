"""Verifies tokens inside the issuer, with the current keys of its key ring."""

from __future__ import annotations

from libs.common.auth.identity import Identity
from libs.common.auth.revocations import RevocationView
from libs.common.auth.tokens import MAX_LIFETIME, TokenVerifier
from services.authz.domain.ports import KeyRing


class KeyRingVerifier(TokenVerifier):
    """A TokenVerifier over the issuer's key ring. Tokens of a removed key are refused, also cached ones."""

    def __init__(
        self,
        keys: KeyRing,
        *,
        issuer: str,
        audience: str,
        max_lifetime: float = MAX_LIFETIME,
        revocations: RevocationView | None = None,
    ) -> None:
        # Without an introspection fallback: this is the issuer itself.
        super().__init__(
            keys.jwks, issuer=issuer, audience=audience, max_lifetime=max_lifetime, revocations=revocations
        )
        self._ring = keys
        self._loaded_jwks = b""

    def known(self, token: str) -> Identity | None:
        """Return the cached identity of a token; None if the key ring must be read first."""
        jwks = self._ring.cached_jwks()
        return super().known(token) if jwks is not None and jwks == self._loaded_jwks else None

    async def verify(self, token: str) -> Identity:
        jwks = await self._ring.jwks()
        if jwks != self._loaded_jwks:
            await self.refresh()
            self._loaded_jwks = jwks
        return await super().verify(token)
