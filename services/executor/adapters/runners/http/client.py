"""Calls the HTTP endpoints of tools: bounded, retried only where that is safe, with secrets put in last."""

from __future__ import annotations

import asyncio

from libs.common.errors import Reason
from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.cancelable import run_cancelable
from services.executor.adapters.runners.http.connections import HttpConnections
from services.executor.adapters.runners.http.exchange import AttemptError, Exchange
from services.executor.adapters.runners.http.failover import FailoverExchange, build_failover
from services.executor.adapters.runners.http.secret_headers import bind_secrets
from services.executor.adapters.runners.worker.answer import log_failure
from services.executor.adapters.secrets.binding import reject_secrets
from services.executor.adapters.telemetry.http_metrics import http_retries
from services.executor.domain.http.build_request import build_request, describe_request
from services.executor.domain.http.endpoint import HttpEndpoint
from services.executor.domain.ports import SecretStore
from services.executor.domain.resilience.circuit import Circuits
from services.executor.domain.resilience.retry import RetryBudget, RetrySchedule
from services.executor.domain.run import Forecast, RunRequest, RunResult
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.tool import Tool

_BUDGETS = 4096
# What is left of a call's time to answer its caller, as a share and at most.
_MARGIN, _MOST_MARGIN = 0.05, 0.1
# A call with less of the tool's own time says nothing about a service that does not answer in it.
_FAIR_SHARE = 0.9


class HttpClient:
    """Makes the requests of all calls of one executor."""

    def __init__(
        self,
        connections: HttpConnections,
        secrets: SecretStore,
        circuits: Circuits,
        clock: Clock,
        log: Log,
        heavy_work: HeavyWork,
        *,
        output_bytes: int,
    ) -> None:
        self._connections, self._secrets, self._clock, self._log = connections, secrets, clock, log
        self._circuits, self._heavy_work = circuits, heavy_work
        self._output_bytes = output_bytes
        # By caller: the failures of one never use up the retries of another.
        self._budgets: BoundedCache[tuple[str, str, str], RetryBudget] = BoundedCache(_BUDGETS)

    async def call(self, tool: Tool, endpoint: HttpEndpoint, work: RunRequest) -> RunResult:
        """Call the endpoint. When canceled, the connection is closed at once."""
        request = build_request(endpoint, work.arguments, work.idempotency_key)
        if work.preview:
            work.begin()
            return RunResult(None, forecast=Forecast(tool.effects, impact=describe_request(endpoint, request)))
        bound = await bind_secrets(endpoint, tool, work.tenant, self._secrets)
        seconds = work.begin()
        until = asyncio.get_running_loop().time() + seconds - min(seconds * _MARGIN, _MOST_MARGIN)
        limit = self._output_bytes if tool.persists else min(self._output_bytes, tool.max_result_bytes)
        share = self._heavy_work.share_of(work)
        exchange = Exchange(
            self._connections, tool.confinement, endpoint.url, request, bound, share, limit, self._clock
        )
        fair = seconds >= _FAIR_SHARE * tool.own_limit
        failover = build_failover(exchange, endpoint, self._circuits, tool, work, seconds, fair=fair)
        return await run_cancelable(self._attempts(tool, endpoint, work, failover, until), work)

    async def _attempts(
        self, tool: Tool, endpoint: HttpEndpoint, work: RunRequest, exchange: FailoverExchange, until: float
    ) -> RunResult:
        loop, budget = asyncio.get_running_loop(), self._budget(endpoint, work)
        budget.earn()
        repeatable = endpoint.is_repeatable(work.idempotency_key)
        schedule = RetrySchedule(tool.retry, budget, until)
        uncertain = False
        while True:
            try:
                value = await exchange.send(until)
            except AttemptError as attempt:
                uncertain = uncertain or attempt.error.metadata.get("effect") == "unknown"
                retried = attempt.retryable and (tool.retry is None or attempt.matches(tool.retry.statuses))
                safe = retried and (repeatable or not attempt.sent)
                delay = schedule.next_delay(loop.time(), safe=safe, asked=attempt.error.retry_after)
                if delay is None:
                    if uncertain:
                        # An earlier attempt may have had its effect, whatever became of the last one.
                        attempt.error.metadata["effect"] = "unknown"
                    log_failure(self._log, tool, work, attempt.error, attempt.detail)
                    if attempt.error.reason is Reason.CREDENTIAL_EXPIRED:
                        await reject_secrets(self._secrets, (use.secret for use in endpoint.secrets), work.tenant)
                    raise attempt.error from None
                http_retries.inc()
                await asyncio.sleep(delay)
            else:
                return RunResult(value)

    def _budget(self, endpoint: HttpEndpoint, work: RunRequest) -> RetryBudget:
        key = (work.tenant, "" if work.tenant else work.subject, endpoint.url.origin)
        if key in self._budgets:
            return self._budgets[key]
        return self._budgets.put(key, RetryBudget())

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()
