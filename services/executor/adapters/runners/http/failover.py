"""Sends a request to the first endpoint of a service that takes it. Each endpoint has a circuit of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from libs.common.errors import Reason
from services.executor.adapters.runners.http.exchange import AttemptError, Exchange
from services.executor.adapters.runners.http.guarded_exchange import GuardedExchange
from services.executor.adapters.runners.upstreams.guarded_call import party_of
from services.executor.adapters.telemetry.http_metrics import http_failovers
from services.executor.domain.http.endpoint import HttpEndpoint
from services.executor.domain.resilience.circuit import Circuits
from services.executor.domain.run import RunRequest
from services.executor.domain.tool import Tool

# The longest wait for a connection while another endpoint is left, in seconds and as a share of the call's time.
_CONNECT_SECONDS, _CONNECT_SHARE = 2.0, 0.2
_NEXT_MAY_HELP = frozenset({Reason.CIRCUIT_OPEN, Reason.EXTERNAL_UNAVAILABLE})


class FailoverExchange:
    """The exchange of one call with all endpoints of its service."""

    def __init__(self, exchanges: Sequence[GuardedExchange]) -> None:
        *self._others, self._last = exchanges

    async def send(self, until: float) -> Any:
        """Return the result of the first endpoint that took the request. Raises AttemptError of the last one tried."""
        for exchange in self._others:
            try:
                return await exchange.send(until)
            except AttemptError as attempt:
                if attempt.sent or attempt.error.reason not in _NEXT_MAY_HELP:
                    # The request may have had its effect there.
                    raise
                http_failovers.inc()
        return await self._last.send(until)


def build_failover(
    exchange: Exchange,
    endpoint: HttpEndpoint,
    circuits: Circuits,
    tool: Tool,
    work: RunRequest,
    seconds: float,
    *,
    fair: bool,
) -> FailoverExchange:
    """Return the exchange with the endpoint and those that stand in for it. The call has so many `seconds`."""
    service, party = tool.placement.service or endpoint.url.origin, party_of(work)
    if not endpoint.failover:
        return FailoverExchange([GuardedExchange(exchange, circuits, tool, party, service, fair=fair)])
    connect_seconds = min(_CONNECT_SECONDS, seconds * _CONNECT_SHARE)
    exchanges = []
    for url in endpoint.urls:
        limit = None if url is endpoint.urls[-1] else connect_seconds
        name = service if url is endpoint.url else url.origin
        exchanges.append(
            GuardedExchange(replace(exchange, url=url, connect_seconds=limit), circuits, tool, party, name, fair=fair)
        )
    return FailoverExchange(exchanges)
