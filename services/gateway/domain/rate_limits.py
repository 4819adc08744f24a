"""How often a caller may do what the edge cannot tell apart: it reads no body, and counts a batch as one request."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from libs.common.errors import MeshError, Reason
from libs.common.runtime.bounded_cache import BoundedCache

MAX_BUCKETS = 20_000
# Sums of fractions of a second are off by less.
_ROUNDING = 1e-6


class Rate(NamedTuple):
    """So many in a second, for each caller and process; a caller that was quiet may do `burst` at once."""

    name: str
    per_second: float
    burst: int


# Making tokens signs and stores; searches rank the whole catalogue. The edge has the same rates for gRPC.
TOKENS = Rate("tokens", 50, 200)
# Exchanges of other tokens, by address: who asks has no token of the mesh yet. The edge has the same rate.
EXCHANGES = Rate("exchanges", 5, 20)
SEARCHES = Rate("searches", 200, 400)
# Each tool of a listing is put to policy.
LISTINGS = Rate("listings", 100, 400)
SESSIONS = Rate("sessions", 50, 200)
# The entries of batches and the calls of groups.
BATCHED_CALLS = Rate("batched_calls", 2000, 4000)


class RateLimits:
    """A bucket for each caller and rate. A caller that comes back after very many others finds it full again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, max_buckets: int = MAX_BUCKETS) -> None:
        self._clock = clock
        # When each bucket is full again; the longest unused first.
        self._full_at: BoundedCache[tuple[str, str], float] = BoundedCache(max_buckets)

    def take(self, owner: str, rate: Rate, count: int = 1) -> None:
        """Count so many. Raises RATE_LIMITED with the time to wait, and counts nothing then."""
        now, key = self._clock(), (owner, rate.name)
        full_at = max(self._full_at.get(key, now), now) + count / rate.per_second
        excess = full_at - now - rate.burst / rate.per_second
        if excess > _ROUNDING:
            raise MeshError(Reason.RATE_LIMITED, retry_after=excess, metadata={"limit": rate.name})
        self._full_at.pop(key, None)
        self._full_at.put(key, full_at)
