"""Makes a call of a server of an upstream if its circuit lets it pass, and reports what the call says about it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar
from urllib.parse import quote

from libs.common.errors import MeshError, Reason
from services.executor.domain import errors
from services.executor.domain.resilience.circuit import CallOutcome, Circuits
from services.executor.domain.run import RunRequest
from services.executor.domain.tool import Tool

T = TypeVar("T")
# A call with less of the tool's own time says nothing about a server that does not answer in it.
_FAIR_SHARE = 0.9
_BROKEN = frozenset({Reason.EXTERNAL_UNAVAILABLE, Reason.RESULT_INVALID, Reason.TOOL_CRASHED})
# The server limits the rate, or was not asked.
_SILENT = frozenset(
    {
        Reason.EXTERNAL_RATE_LIMITED,
        Reason.INVOCATION_CANCELED,
        Reason.DEADLINE_EXCEEDED,
        Reason.TOKEN_EXPIRED,
        Reason.SANDBOX_UNAVAILABLE,
        Reason.SANDBOX_NOT_READY,
        Reason.SERVICE_UNAVAILABLE,
    }
)


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class CallGuard:
    """One call behind the circuit that all tools of a namespace share for a server."""

    circuits: Circuits
    tool: Tool
    work: RunRequest
    service: str
    """Names the server in errors."""
    owner: str = ""
    """Whose servers share the circuit, where callers do not share the server."""

    @property
    def circuit(self) -> str:
        # By namespace: no publisher can open a circuit that tools of others use.
        name = f"{self.tool.qualified.rpartition('.')[0]}/{self.tool.placement.service or self.service}"
        return f"{name}/{quote(self.owner, safe='')}" if self.owner else name

    def is_fair(self, seconds: float) -> bool:
        """Return whether a server that has so much time has what the tool declares."""
        return seconds >= _FAIR_SHARE * self.tool.own_limit

    async def run(
        self,
        send: Callable[[], Awaitable[T]],
        *,
        fair: bool = True,
        was_silent: Callable[[], bool] = _never,
        server_seconds: Callable[[], float] | None = None,
    ) -> T:
        """Return what `send` returns. Raises its errors; CIRCUIT_OPEN or EXTERNAL_RATE_LIMITED if it was not called.

        `fair` is whether the server has the time that the tool declares. `was_silent` tells of a canceled call whether
        the server did not answer within that time. `server_seconds` is what a finished call took of the server; unset:
        all of its time.
        """
        name, party = self.circuit, party_of(self.work)
        config = replace(self.tool.circuit, private=True) if self.owner else self.tool.circuit
        admission = await self.circuits.admit(name, config, party)
        if not admission.admitted:
            raise errors.held_back(self.service, admission.wait, limited=admission.limited)
        started = time.monotonic()
        try:
            value = await send()
        except MeshError as error:
            await self.circuits.report(name, config, admission, outcome_of(error, fair=fair))
            if error.reason is Reason.EXTERNAL_RATE_LIMITED:
                await self.hold_back(error.retry_after)
            raise
        except BaseException:
            outcome = CallOutcome.FAILURE if was_silent() else CallOutcome.NONE
            self.circuits.abandon(name, config, admission, outcome)
            raise
        taken = time.monotonic() - started if server_seconds is None else server_seconds()
        slow = config.slow_seconds is not None and taken > config.slow_seconds
        await self.circuits.report(name, config, admission, CallOutcome.SLOW if slow else CallOutcome.SUCCESS)
        return value

    async def hold_back(self, seconds: float | None) -> None:
        """Hold the calls of the caller's tenant back for so long, because the server limits its rate."""
        if seconds:
            await self.circuits.limit(self.circuit, party_of(self.work), seconds)


def party_of(work: RunRequest) -> str:
    """Return whose calls are held back when a service limits a rate: those of the tenant, or of the subject alone."""
    return f"tenant {work.tenant}" if work.tenant else f"subject {work.subject}"


def outcome_of(error: MeshError, *, fair: bool) -> CallOutcome:
    """Return what a failure says about the server. `fair` is whether it had the time that the tool declares."""
    if error.reason is Reason.EXTERNAL_TIMEOUT:
        return CallOutcome.FAILURE if fair else CallOutcome.NONE
    if error.reason in _SILENT:
        return CallOutcome.NONE
    return CallOutcome.FAILURE if error.reason in _BROKEN else CallOutcome.SUCCESS
