"""Counts budgets in Redis or Valkey. One Lua script counts a call in all of its buckets or in none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from services.executor.adapters.telemetry.metrics import reservation_seconds, reservations
from services.executor.domain import errors
from services.executor.domain.model import Reservation, SpendingLimit

SCRIPT = Path(__file__).with_suffix(".lua").read_text()
_PREFIX = "toolmesh:spending:"
_CONNECTIONS = 64
# Timeout of connecting and of each response; callers have deadlines, and the store is near.
_RESPONSE_SECONDS = 1.0
_OUTCOMES = {Reason.RATE_LIMITED: "rate_limited", Reason.BUDGET_EXHAUSTED: "budget_exhausted"}


class RedisBudget:
    """Counts by the store's clock, which all executors share. Tests may pass another clock."""

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self._pool = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=_RESPONSE_SECONDS,
            socket_connect_timeout=_RESPONSE_SECONDS,
            socket_timeout=_RESPONSE_SECONDS,
            # No retries here: the caller knows whether it has time for another attempt.
            retry=Retry(NoBackoff(), 0),
        )
        self._client = redis.asyncio.Redis(connection_pool=self._pool)
        self._script = self._client.register_script(SCRIPT)
        self._clock = clock

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()
        await self._pool.aclose()

    async def reserve(self, reservation: Reservation) -> float:
        """Count a call in all buckets or in none; return the seconds that it may run."""
        try:
            with reservation_seconds.time():
                seconds = await self._reserve(reservation)
        except MeshError as error:
            reservations.labels(_OUTCOMES.get(error.reason, "uncounted")).inc()
            raise
        reservations.labels("granted").inc()
        return seconds

    async def _reserve(self, reservation: Reservation) -> float:
        response = await self._execute("reserve", reservation, reservation.cost_micros, reservation.seconds, began=True)
        if response[0] in (b"granted", b"repeated"):
            return min(int(response[1]) / 1e6, reservation.seconds)
        if response[0] == b"refused":
            raise _refusal_error(reservation.limits[int(response[1]) - 1], response[2].decode(), int(response[3]))
        # The reservation was settled before it arrived, so its caller no longer waits.
        raise errors.budget_unavailable()

    async def settle(self, reservation: Reservation, *, ran: float | None) -> None:
        """Replace the reservation by the actual cost. A call that never started costs nothing."""
        cost = 0 if ran is None else reservation.cost_micros
        await self._execute("settle", reservation, cost, ran or 0.0, began=ran is not None)

    async def _execute(
        self, verb: str, reservation: Reservation, cost: int, seconds: float, *, began: bool
    ) -> list[bytes]:
        keys = [f"{_PREFIX}call:{reservation.invocation_id}"]
        keys.extend(f"{_PREFIX}{limit.bucket}" for limit in reservation.limits)
        now = "" if self._clock is None else _micros(self._clock.now().timestamp())
        amounts = (cost, _micros(seconds), _micros(reservation.lease), int(began), int(reservation.use))
        arguments: list[Any] = [verb, now, reservation.invocation_id, *amounts]
        for limit in reservation.limits:
            arguments.extend(_bounds(limit))
        try:
            response: list[bytes] = await self._script(keys=keys, args=arguments)
        except (RedisError, OSError) as error:
            raise errors.budget_unavailable() from error
        return response


def _refusal_error(limit: SpendingLimit, kind: str, micros: int) -> MeshError:
    if micros < 0:
        return errors.budget_exhausted(limit.source, kind)
    return errors.rate_limited(limit.source, kind, micros / 1e6)


def _bounds(limit: SpendingLimit) -> tuple[int | str, ...]:
    """Return a bucket's limits in the script's order; unset ones are empty."""
    limits = (
        _micros(limit.window),
        limit.max_calls,
        limit.max_cost_micros,
        limit.max_concurrent,
        _micros(limit.max_running),
        _micros(limit.expires_at),
    )
    return tuple("" if bound is None else bound for bound in limits)


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)
