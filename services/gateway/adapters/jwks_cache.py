"""Caches the mesh's public keys, so that many edges cause one request to the issuer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from libs.common.errors import MeshError
from libs.common.runtime.clock import Clock

FRESH_SECONDS = 2.0


class JwksCache:
    """Returns the key set, fetched at most every two seconds.

    While the issuer is unreachable the last key set is returned: it still verifies tokens.
    """

    def __init__(self, fetch: Callable[[], Awaitable[bytes]], clock: Clock) -> None:
        self._fetch, self._clock = fetch, clock
        self._lock = asyncio.Lock()
        self._cached: bytes | None = None
        self._tried_at = float("-inf")

    async def get(self) -> bytes:
        """Return the key set as JSON. Raises the issuer's failure if no key set was ever fetched."""
        if self._cached is not None and self._is_fresh():
            return self._cached
        async with self._lock:
            if self._cached is not None and self._is_fresh():
                return self._cached
            return await self._fetch_again()

    async def _fetch_again(self) -> bytes:
        try:
            self._cached = await self._fetch()
        except MeshError:
            if self._cached is None:
                raise
        finally:
            # A failure counts as an attempt, so that callers do not wait for a missing issuer each time.
            self._tried_at = self._clock.monotonic()
        return self._cached

    def _is_fresh(self) -> bool:
        return self._clock.monotonic() - self._tried_at < FRESH_SECONDS
