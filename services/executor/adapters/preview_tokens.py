"""Stateless preview tokens: encrypted, bound to a call and valid for a limited time."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime, timedelta

from libs.common.runtime.clock import Clock
from libs.common.sealing import Seal, SealError

VALID = timedelta(minutes=15)
_PURPOSE = "preview "


class SealedPreviewTokens:
    """Issues and verifies tokens. Executors with the same keys accept each other's tokens."""

    def __init__(self, seal: Seal, clock: Clock) -> None:
        self._seal, self._clock = seal, clock

    def issue(self, facts: str) -> tuple[str, datetime]:
        """Return a token for a call with these facts, and its expiry time."""
        expires = self._clock.now() + VALID
        sealed = self._seal.seal(expires.isoformat().encode(), _PURPOSE + facts)
        return base64.urlsafe_b64encode(sealed).decode(), expires

    def accepts(self, token: str, facts: str) -> bool:
        """Return whether a token was issued for a call with these facts and has not expired."""
        try:
            sealed = base64.b64decode(token, altchars=b"-_", validate=True)
            expires = datetime.fromisoformat(self._seal.open(sealed, _PURPOSE + facts).decode())
        except (SealError, binascii.Error, ValueError):
            return False
        return self._clock.now() < expires
