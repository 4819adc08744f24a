"""Sends a request if the circuit of its service lets it pass, and reports what the answer says about the service."""

from __future__ import annotations

import time
from typing import Any

from libs.common.errors import MeshError, Reason
from services.executor.adapters.runners.http.exchange import AttemptError, Exchange
from services.executor.adapters.telemetry.http_metrics import http_requests
from services.executor.domain import errors
from services.executor.domain.resilience.circuit import CallOutcome, Circuits
from services.executor.domain.tool import Tool

_FAILURES = frozenset({Reason.EXTERNAL_UNAVAILABLE, Reason.RESULT_INVALID})
# These say nothing about the health of a service: it limits our rate, or it was not asked.
_SILENT = frozenset({Reason.EXTERNAL_RATE_LIMITED, Reason.NETWORK_POLICY_VIOLATION})


class GuardedExchange:
    """The exchange of one call, behind the circuit that all tools of a namespace share for a service."""

    def __init__(
        self, exchange: Exchange, circuits: Circuits, tool: Tool, party: str, service: str, *, fair: bool
    ) -> None:
        """`service` names the circuit; `fair` is whether the call gives the service the time that the tool declares."""
        self._party = party
        self._exchange, self._circuits, self._config, self._fair = exchange, circuits, tool.circuit, fair
        self._origin = exchange.url.origin
        # By namespace: no publisher can open a circuit that tools of others use.
        self._name = f"{tool.qualified.rpartition('.')[0]}/{service}"

    async def send(self, until: float) -> Any:
        """Return the result. Raises AttemptError; with CIRCUIT_OPEN if the request was held back."""
        admission = await self._circuits.admit(self._name, self._config, self._party)
        if not admission.admitted:
            error = errors.held_back(self._origin, admission.wait, limited=admission.limited)
            raise AttemptError(error, sent=False)
        started = time.monotonic()
        try:
            result = await self._exchange.send(until)
        except AttemptError as attempt:
            http_requests.labels(attempt.error.reason.name.lower()).inc()
            await self._circuits.report(self._name, self._config, admission, self._failure(attempt.error))
            if attempt.error.reason is Reason.EXTERNAL_RATE_LIMITED:
                await self._hold_back(attempt.error.retry_after)
            raise
        except BaseException:
            http_requests.labels("canceled").inc()
            self._circuits.abandon(self._name, self._config, admission)
            raise
        http_requests.labels("succeeded").inc()
        await self._circuits.report(self._name, self._config, admission, self._success(time.monotonic() - started))
        await self._hold_back(result.limited_for)
        return result.value

    async def _hold_back(self, seconds: float | None) -> None:
        if seconds:
            await self._circuits.limit(self._name, self._party, seconds)

    def _success(self, seconds: float) -> CallOutcome:
        slow = self._config.slow_seconds
        return CallOutcome.SLOW if slow is not None and seconds > slow else CallOutcome.SUCCESS

    def _failure(self, error: MeshError) -> CallOutcome:
        if error.reason is Reason.EXTERNAL_TIMEOUT:
            return CallOutcome.FAILURE if self._fair else CallOutcome.NONE
        if error.reason in _SILENT:
            return CallOutcome.NONE
        return CallOutcome.FAILURE if error.reason in _FAILURES else CallOutcome.SUCCESS
