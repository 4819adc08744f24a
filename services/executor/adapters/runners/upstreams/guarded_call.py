"""Makes a call of a server of an upstream if its circuit lets it pass, and reports what the call says about it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from libs.common.errors import MeshError, Reason
from services.executor.domain import errors
from services.executor.domain.resilience.circuit import CallOutcome, Circuits
from services.executor.domain.run import RunRequest
from services.executor.domain.tool import Tool

T = TypeVar("T")
# A call with less of the tool's own time says nothing about a server that does not answer in it.
_FAIR_SHARE = 0.9
_BROKEN = frozenset({Reason.EXTERNAL_UNAVAILABLE, Reason.RESULT_INVALID})


async def run_guarded(
    circuits: Circuits, tool: Tool, work: RunRequest, origin: str, seconds: float, send: Callable[[], Awaitable[T]]
) -> T:
    """Return what `send` returns. Raises its errors; CIRCUIT_OPEN or EXTERNAL_RATE_LIMITED if it was not called.

    It has so many `seconds`.
    """
    # By namespace: no publisher can open a circuit that tools of others use.
    name = f"{tool.qualified.rpartition('.')[0]}/{tool.placement.service or origin}"
    config, fair = tool.circuit, seconds >= _FAIR_SHARE * tool.own_limit
    admission = await circuits.admit(name, config, party_of(work))
    if not admission.admitted:
        raise errors.held_back(origin, admission.wait, limited=admission.limited)
    started = time.monotonic()
    try:
        value = await send()
    except MeshError as error:
        await circuits.report(name, config, admission, outcome_of(error, fair=fair))
        if error.reason is Reason.EXTERNAL_RATE_LIMITED and error.retry_after:
            await circuits.limit(name, party_of(work), error.retry_after)
        raise
    except BaseException:
        circuits.abandon(name, config, admission)
        raise
    slow = config.slow_seconds is not None and time.monotonic() - started > config.slow_seconds
    await circuits.report(name, config, admission, CallOutcome.SLOW if slow else CallOutcome.SUCCESS)
    return value


def party_of(work: RunRequest) -> str:
    """Return whose calls are held back when a service limits a rate: those of the tenant, or of the subject alone."""
    return f"tenant {work.tenant}" if work.tenant else f"subject {work.subject}"


def outcome_of(error: MeshError, *, fair: bool) -> CallOutcome:
    """Return what a failure says about the server. `fair` is whether it had the time that the tool declares."""
    if error.reason is Reason.EXTERNAL_TIMEOUT:
        return CallOutcome.FAILURE if fair else CallOutcome.NONE
    if error.reason is Reason.EXTERNAL_RATE_LIMITED:
        return CallOutcome.NONE
    return CallOutcome.FAILURE if error.reason in _BROKEN else CallOutcome.SUCCESS
