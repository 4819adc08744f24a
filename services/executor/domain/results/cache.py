"""Results that may be used again: of read-only tools that say for how long, for the same caller and the same arguments. Pure.

What is kept is what the tool returned, once it was found to keep its contract, and before anything was removed from it: what binds a call is its own decision's
business, and policy is asked for every call, cached or not. Two callers never share a result.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Protocol

from services.executor.domain.model import Caller
from services.executor.domain.tool import Mutation, Tool

# The facts about a caller that a result may depend on and still be used again.
_IN_KEY = frozenset({"tenant", "subject"})


class CacheKey(NamedTuple):
    """What must be equal for a result to be used again."""

    tool_digest: str
    arguments_digest: str
    tenant: str
    subject: str


class CacheHit(NamedTuple):
    """A result that may be used again: its JSON, and when it was made."""

    content: bytes
    created: datetime


class FlightLease(Protocol):
    """The one run of those that would all return the same. It must be ended, whatever becomes of it."""

    def keep(self, content: bytes, created: datetime, seconds: float) -> None:
        """Keep the result for so many seconds. Has no effect if its version changed meanwhile, or there is no room for it."""
        ...

    def end(self) -> None:
        """Let those go on who wait for it. Ending twice ends once."""
        ...


class ResultCache(Protocol):
    """The results that this executor remembers."""

    async def enter(self, key: CacheKey) -> CacheHit | FlightLease:
        """Return a result that is fresh, waiting for a run under way that would bring it; or the right to run. Waits for one such run at
        most, so a run that brings nothing delays the others and never queues them, and for as long as whoever asks lets it."""
        ...


def cache_key_for(tool: Tool, caller: Caller, arguments_digest: str) -> CacheKey | None:
    """Return what a result would be kept under; None if results of this tool are never used again."""
    if tool.cache_seconds <= 0 or tool.mutation is not Mutation.READ_ONLY:
        return None
    if tool.argument_spec is not None and any(
        fill.fact and fill.fact not in _IN_KEY for fill in tool.argument_spec.fills
    ):
        # What the tool gets differs from call to call, though nobody asked for anything else.
        return None
    return CacheKey(tool.digest, arguments_digest, caller.tenant, caller.subject)
