"""Spending counted in Redis or Valkey: one script, so that a call counts in all of its buckets or in none."""

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
# Waited for a connection, and for each answer: whoever calls has a deadline, and the store is near.
_ANSWER_SECONDS = 1.0
_OUTCOMES = {Reason.RATE_LIMITED: "rate_limited", Reason.BUDGET_EXHAUSTED: "budget_exhausted"}


class RedisSpending:
    """Counts by the store's own clock, which all executors share; tests may bring another."""

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self._pool = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=_ANSWER_SECONDS,
            socket_connect_timeout=_ANSWER_SECONDS,
            socket_timeout=_ANSWER_SECONDS,
            # Whoever calls is told at once, and knows better whether there is time to try again.
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
        """Count a call everywhere or nowhere; return how many seconds it may run."""
        try:
            with reservation_seconds.time():
                seconds = await self._reserve(reservation)
        except MeshError as error:
            reservations.labels(_OUTCOMES.get(error.reason, "uncounted")).inc()
            raise
        reservations.labels("granted").inc()
        return seconds

    async def _reserve(self, reservation: Reservation) -> float:
        answer = await self._ask("reserve", reservation, reservation.cost_micros, reservation.seconds, began=True)
        if answer[0] in (b"granted", b"repeated"):
            return min(int(answer[1]) / 1e6, reservation.seconds)
        if answer[0] == b"refused":
            raise _refused(reservation.limits[int(answer[1]) - 1], answer[2].decode(), int(answer[3]))
        # It was settled before it was reserved: whoever reserves is no longer waited for.
        raise errors.spending_uncounted()

    async def settle(self, reservation: Reservation, *, ran: float | None) -> None:
        """Count what it took. What never began costs nothing."""
        cost = 0 if ran is None else reservation.cost_micros
        await self._ask("settle", reservation, cost, ran or 0.0, began=ran is not None)

    async def _ask(self, verb: str, reservation: Reservation, cost: int, seconds: float, *, began: bool) -> list[bytes]:
        keys = [f"{_PREFIX}call:{reservation.invocation_id}"]
        keys.extend(f"{_PREFIX}{limit.bucket}" for limit in reservation.limits)
        now = "" if self._clock is None else _micros(self._clock.now().timestamp())
        amounts = (cost, _micros(seconds), _micros(reservation.lease), int(began), int(reservation.use))
        arguments: list[Any] = [verb, now, reservation.invocation_id, *amounts]
        for limit in reservation.limits:
            arguments.extend(_bounds(limit))
        try:
            answer: list[bytes] = await self._script(keys=keys, args=arguments)
        except (RedisError, OSError) as error:
            raise errors.spending_uncounted() from error
        return answer


def _refused(limit: SpendingLimit, kind: str, micros: int) -> MeshError:
    if micros < 0:
        return errors.budget_exhausted(limit.source, kind)
    return errors.rate_limited(limit.source, kind, micros / 1e6)


def _bounds(limit: SpendingLimit) -> tuple[int | str, ...]:
    """A bucket's bounds in the order of the script; what is unset is empty."""
    found = (
        _micros(limit.window),
        limit.max_calls,
        limit.max_cost_micros,
        limit.max_concurrent,
        _micros(limit.max_running),
        _micros(limit.expires_at),
    )
    return tuple("" if bound is None else bound for bound in found)


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)
