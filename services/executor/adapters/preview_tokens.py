"""Tokens that show that a call was previewed: sealed, bound to the call, and good for a while. Nothing is stored."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime, timedelta

from libs.common.runtime.clock import Clock
from libs.common.sealing import Seal, SealError

VALID = timedelta(minutes=15)
_PURPOSE = "preview "


class SealedPreviewTokens:
    """Any executor with the same keys knows a token of any other."""

    def __init__(self, seal: Seal, clock: Clock) -> None:
        self._seal, self._clock = seal, clock

    def issue(self, facts: str) -> tuple[str, datetime]:
        """Return a token for a call with these facts, and until when it is good."""
        expires = self._clock.now() + VALID
        sealed = self._seal.seal(expires.isoformat().encode(), _PURPOSE + facts)
        return base64.urlsafe_b64encode(sealed).decode(), expires

    def accepts(self, token: str, facts: str) -> bool:
        """Say whether a token was issued for a call with these facts and is still good."""
        try:
            sealed = base64.b64decode(token, altchars=b"-_", validate=True)
            expires = datetime.fromisoformat(self._seal.open(sealed, _PURPOSE + facts).decode())
        except (SealError, binascii.Error, ValueError):
            return False
        return self._clock.now() < expires
