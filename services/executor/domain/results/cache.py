"""Defines the result cache: results of read-only tools, for the same caller and the same arguments. Pure.

The cached value is the tool's verified result before redaction. Policy is asked for every call, cached or not, and its
obligations are applied to each. Two callers never share a result.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Protocol

from libs.common.errors import MeshError, Reason
from services.executor.domain.model import Caller
from services.executor.domain.tool import Mutation, Tool

# The facts about a caller that are part of the cache key.
_IN_KEY = frozenset({"tenant", "subject"})
# Failures of the service, which say nothing about the caller or the call.
_SERVICE_FAILED = frozenset(
    {
        Reason.CIRCUIT_OPEN,
        Reason.EXTERNAL_RATE_LIMITED,
        Reason.EXTERNAL_TIMEOUT,
        Reason.EXTERNAL_UNAVAILABLE,
    }
)


class CacheKey(NamedTuple):
    """The key of a cached result."""

    tool_digest: str
    code: str
    """The sandbox and the code in it: other code may have another result."""
    arguments_digest: str
    tenant: str
    subject: str


class CacheHit(NamedTuple):
    """A cached result: its JSON, and when it was computed."""

    content: bytes
    created: datetime


class FlightLease(Protocol):
    """The single-flight lease of the one call that computes a result. It must be ended, however the run ends."""

    def keep(self, content: bytes, created: datetime, seconds: float, stale_seconds: float) -> None:
        """Cache the result: fresh for `seconds`, then stale for `stale_seconds`.

        No effect if the version changed meanwhile, or the cache has no room.
        """
        ...

    def end(self) -> None:
        """Wake the calls that wait for the result. Idempotent."""
        ...


class ResultCache(Protocol):
    """The cached results of this executor."""

    async def enter(self, key: CacheKey) -> CacheHit | FlightLease:
        """Return a fresh result, or a lease to compute it.

        Waits for at most one run of the same call that is under way, so a failed run delays others and never queues
        them.
        """
        ...

    def find_stale(self, key: CacheKey) -> CacheHit | None:
        """Return a result that is fresh or stale; None if there is none."""
        ...


def cache_key_for(tool: Tool, caller: Caller, arguments_digest: str, code: str = "") -> CacheKey | None:
    """Return the cache key of a call; None if its result must not be cached."""
    if tool.cache_seconds <= 0 or tool.mutation is not Mutation.READ_ONLY:
        return None
    if tool.argument_spec is not None and any(
        fill.fact and fill.fact not in _IN_KEY for fill in tool.argument_spec.fills
    ):
        # An internal argument differs from call to call, although the caller's arguments are the same.
        return None
    return CacheKey(tool.digest, code, arguments_digest, caller.tenant, caller.subject)


def allows_stale(tool: Tool, error: MeshError) -> bool:
    """Return whether an older result may answer a call that failed like this."""
    return tool.stale_seconds > 0 and error.reason in _SERVICE_FAILED
