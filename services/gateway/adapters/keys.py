"""The mesh's public keys, kept for a moment: many edges may ask, the issuer is asked once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from libs.common.errors import MeshError
from libs.common.runtime.clock import Clock

FRESH_SECONDS = 2.0


class KeySet:
    """Answers the key set, fetched at most once in two seconds. While the issuer is away the last one is answered: an old
    key set still tells good tokens from forged ones, and none at all would stop every caller."""

    def __init__(self, fetch: Callable[[], Awaitable[bytes]], clock: Clock) -> None:
        self._fetch, self._clock = fetch, clock
        self._lock = asyncio.Lock()
        self._kept: bytes | None = None
        self._tried_at = float("-inf")

    async def __call__(self) -> bytes:
        """Return the key set as JSON. Raises the issuer's failure when there never was one."""
        if self._kept is not None and self._is_fresh():
            return self._kept
        async with self._lock:
            if self._kept is not None and self._is_fresh():
                return self._kept
            return await self._renewed()

    async def _renewed(self) -> bytes:
        try:
            self._kept = await self._fetch()
        except MeshError:
            if self._kept is None:
                raise
        finally:
            # A failure counts as a try: the issuer gets time to come back, and callers do not wait for it each time.
            self._tried_at = self._clock.monotonic()
        return self._kept

    def _is_fresh(self) -> bool:
        return self._clock.monotonic() - self._tried_at < FRESH_SECONDS
