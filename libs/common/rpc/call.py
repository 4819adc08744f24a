"""The call that is being served: who asks, by when, within which trace. Set once by the chain, read anywhere below."""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from libs.common.auth.identity import Identity
    from libs.common.rpc.timebox import Timebox
    from libs.common.telemetry.trace import TraceContext


@dataclass(slots=True)
class Call:
    """One call under way."""

    method: str
    trace: TraceContext
    peer: str = ""
    identity: Identity | None = None
    token: str = ""
    deadline: float | None = None
    """By when the answer must be there, on time.monotonic()."""
    started: float = field(default_factory=time.monotonic)
    request_id: str = ""
    offered: float | None = None
    """How many seconds the caller left for this hop when the call arrived."""
    span: Any = None
    timebox: Timebox | None = None

    def remaining(self) -> float | None:
        """Return the seconds that are left, never less than zero; None when there is no deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def caller(self) -> Identity:
        """The verified caller. Only methods whose policy row asks for a caller may read it."""
        if self.identity is None:
            raise LookupError(f"{self.method} has no caller; its policy row does not ask for one")
        return self.identity


_CURRENT: ContextVar[Call | None] = ContextVar("toolmesh_call", default=None)


def current_call() -> Call | None:
    """Return the call being served, or None outside of one."""
    return _CURRENT.get()


def serving() -> Call:
    """Return the call being served; outside of one this is a programming error."""
    call = _CURRENT.get()
    if call is None:
        raise LookupError("no call is being served here")
    return call


def enter(call: Call) -> None:
    """Make this the current call of the running task."""
    _CURRENT.set(call)


def margin(remaining: float) -> float:
    """Return what a hop keeps back to answer in time: a tenth of what is left, between 1 ms and 50 ms."""
    return min(max(remaining * 0.1, 0.001), 0.05)
