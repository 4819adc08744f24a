"""Signals of abuse by callers and by the providers of tools: counted, and warned of where there are many.

A signal is no verdict. `toolmesh audit signals` shows from the log who caused them, and of how many calls.
"""

from __future__ import annotations

from typing import NamedTuple

from prometheus_client import Counter

from libs.common.errors import Reason
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.executor.domain.invocation import Invocation

CALLER, PROVIDER = "caller", "provider"
WINDOW_SECONDS = 300.0
# So many of one party within a window are worth a look.
THRESHOLD = 50
# Callers choose their subjects. More parties within a window are counted only in the metric.
MAX_PARTIES = 10_000


class AbuseSignal(NamedTuple):
    """A kind of signal, and whether it is about the caller or about the provider of the tool."""

    party: str
    name: str


SIGNALS = {
    **dict.fromkeys(
        (Reason.TOOL_NOT_IN_TOKEN, Reason.SCOPE_MISSING, Reason.PERMISSION_DENIED, Reason.AUTHORITY_EXCEEDED),
        AbuseSignal(CALLER, "denied"),
    ),
    **dict.fromkeys((Reason.RATE_LIMITED, Reason.BUDGET_EXHAUSTED), AbuseSignal(CALLER, "limited")),
    **dict.fromkeys(
        (Reason.ARGUMENTS_INVALID, Reason.COERCION_FAILED, Reason.INVALID_JSON),
        AbuseSignal(CALLER, "invalid_arguments"),
    ),
    **dict.fromkeys((Reason.TOOL_NOT_FOUND, Reason.TOOL_VERSION_NOT_FOUND), AbuseSignal(CALLER, "unknown_tools")),
    Reason.INJECTION_DETECTED: AbuseSignal(CALLER, "injection"),
    Reason.NETWORK_POLICY_VIOLATION: AbuseSignal(PROVIDER, "forbidden_hosts"),
    Reason.SIDE_EFFECT_VIOLATION: AbuseSignal(PROVIDER, "undeclared_effects"),
    Reason.RESULT_INVALID: AbuseSignal(PROVIDER, "invalid_results"),
    Reason.SANITIZATION_FAILED: AbuseSignal(PROVIDER, "unclean_results"),
    Reason.TOOL_CRASHED: AbuseSignal(PROVIDER, "crashes"),
}

observed = Counter("toolmesh_executor_abuse_signals_total", "Signals of abuse.", ["party", "signal"])
alarms = Counter(
    "toolmesh_executor_abuse_alarms_total",
    "Parties with many signals of one kind within five minutes; the log names them.",
    ["party", "signal"],
)


class AbuseSignals:
    """Counts the signals of each party in windows of five minutes. The memory is bounded."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log, self._clock = log, clock
        self._counts: dict[tuple[AbuseSignal, str], int] = {}
        self._ends = clock.monotonic() + WINDOW_SECONDS

    def observe(self, invocation: Invocation) -> None:
        """Count what an invocation that ended says about its caller or its provider."""
        signal = SIGNALS.get(invocation.reason) if invocation.reason is not None else None
        name = _party_of(invocation, signal) if signal is not None else ""
        if signal is None or not name:
            return
        observed.labels(*signal).inc()
        now = self._clock.monotonic()
        if now >= self._ends:
            self._counts.clear()
            self._ends = now + WINDOW_SECONDS
        count = self._counts.get((signal, name), 0) + 1
        if count == 1 and len(self._counts) >= MAX_PARTIES:
            return
        self._counts[signal, name] = count
        if count == THRESHOLD:
            alarms.labels(*signal).inc()
            # Once in a window: more lines say nothing more.
            self._log.warning("many signals of abuse", party=signal.party, name=name, signal=signal.name, count=count)


def _party_of(invocation: Invocation, signal: AbuseSignal) -> str:
    """Return the subject of the caller, or the namespace that publishes the tool; empty if there is none."""
    if signal.party == CALLER:
        return invocation.request.caller.subject
    return invocation.tool.qualified.partition(".")[0] if invocation.tool else ""
