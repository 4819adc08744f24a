"""The call that is being served: who asks, by when, within which trace. Set once by the chain, read anywhere below."""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from libs.common.trace_context import RemoteTrace, TraceContext

if TYPE_CHECKING:
    from libs.common.auth.identity import Identity
    from libs.common.deadline_timer import DeadlineTimer


class Call:
    """One call under way. What every call pays for is written out by hand: fields with defaults that are made one by one cost more."""

    __slots__ = (
        "_trace", "deadline", "identity", "method", "offered", "peer", "request_id", "span", "started", "timebox", "token",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        trace: TraceContext | RemoteTrace,
        *,
        peer: str = "",
        identity: Identity | None = None,
        token: str = "",
        deadline: float | None = None,
        started: float | None = None,
        request_id: str = "",
    ) -> None:
        self.method, self._trace, self.peer, self.identity, self.token = method, trace, peer, identity, token
        self.deadline = deadline
        """By when the answer must be there, on time.monotonic()."""
        self.started = time.monotonic() if started is None else started
        self.request_id = request_id
        self.offered: float | None = None
        """How many seconds the caller left for this hop when the call arrived."""
        self.span: Any = None
        self.timebox: DeadlineTimer | None = None

    @property
    def trace(self) -> TraceContext:
        """Where the call stands in its trace. Made when it is first looked at: most calls are answered before anybody does."""
        trace = self._trace
        if isinstance(trace, RemoteTrace):
            trace = self._trace = trace.continued()
        return trace

    @trace.setter
    def trace(self, trace: TraceContext) -> None:
        self._trace = trace

    def remaining(self) -> float | None:
        """Return the seconds that are left, never less than zero; None when there is no deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def caller(self) -> Identity:
        """The verified caller. Only methods whose policy row asks for a caller may read it."""
        if self.identity is None:
            raise LookupError(f"{self.method} has no caller; its policy row does not ask for one")
        return self.identity

    @property
    def tenant(self) -> str:
        """The tenant of the caller; empty where there is no caller, or it belongs to none."""
        return self.identity.tenant if self.identity is not None else ""


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
    """Return what a hop keeps back to answer in time: a tenth of what is left, between 1 ms and 100 ms: on a
    busy machine an answer takes a while to leave."""
    return min(max(remaining * 0.1, 0.001), 0.1)
