"""The current call: its caller, deadline and trace. Set once by the chain, read anywhere below."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from libs.common.trace_context import RemoteTrace, TraceContext

if TYPE_CHECKING:
    from libs.common.auth.identity import Identity
    from libs.common.deadline_timer import DeadlineTimer


class Call:
    """One call. Its fields are assigned by hand, because a dataclass costs every call more."""

    __slots__ = (
        "_trace", "auth_context", "deadline", "deadline_header", "deadline_timer", "identity", "method", "offered",
        "peer", "request_id", "span", "started", "token", "tool",
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
        """When the response is due, on time.monotonic()."""
        self.started = time.monotonic() if started is None else started
        self.request_id = request_id
        self.deadline_header: str | None = None
        """The caller's `x-deadline-ms`, not yet parsed."""
        self.offered: float | None = None
        """The seconds that the caller left for this hop when the call arrived."""
        self.auth_context: Callable[[], Mapping[str, Sequence[bytes]]] | None = None
        """Returns the TLS properties of the peer's connection; costly, so read only where a certificate is needed."""
        self.span: Any = None
        self.tool = ""
        """The tool that it is about, as the caller names it; empty for none. For the log of the edge."""
        self.deadline_timer: DeadlineTimer | None = None

    @property
    def trace(self) -> TraceContext:
        """The trace context, made at first use: most calls end before it is needed."""
        trace = self._trace
        if isinstance(trace, RemoteTrace):
            trace = self._trace = trace.continued()
        return trace

    @trace.setter
    def trace(self, trace: TraceContext) -> None:
        self._trace = trace

    def remaining(self) -> float | None:
        """Return the remaining seconds, never less than zero; None without a deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def caller(self) -> Identity:
        """The verified caller. Only for methods whose policy row requires a caller."""
        if self.identity is None:
            raise LookupError(f"{self.method} has no caller; its policy row does not ask for one")
        return self.identity

    @property
    def tenant(self) -> str:
        """The tenant of the caller; empty without a caller or a tenant."""
        return self.identity.tenant if self.identity is not None else ""


_CURRENT: ContextVar[Call | None] = ContextVar("toolmesh_call", default=None)


def current_call() -> Call | None:
    """Return the current call, or None outside of one."""
    return _CURRENT.get()


def serving() -> Call:
    """Return the current call; raises LookupError outside of one."""
    call = _CURRENT.get()
    if call is None:
        raise LookupError("no call is being served here")
    return call


def enter(call: Call) -> None:
    """Make this the current call of the running task."""
    _CURRENT.set(call)


def margin(remaining: float) -> float:
    """Return the time that a hop reserves to respond: a tenth of the remaining time, between 1 ms and 100 ms."""
    return min(max(remaining * 0.1, 0.001), 0.1)
