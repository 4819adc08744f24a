"""Circuits in Redis or Valkey. One Lua script decides for all executors.

The client library (8 MB) is imported on first use.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from libs.common.runtime.clock import Clock
from services.executor.adapters.circuits.stored_circuit import read_circuit
from services.executor.domain.resilience.circuit import Admission, CallOutcome, CircuitConfig, CircuitState, Transition
from services.executor.domain.resilience.list_circuits import CircuitView

if TYPE_CHECKING:
    import redis.asyncio

SCRIPT = Path(__file__).with_suffix(".lua").read_text()
PREFIX = "toolmesh:executor:circuits:"
_CONNECTIONS = 32
# The store is near, and a replica can decide alone.
_RESPONSE_SECONDS = 0.5
# How long the limits of a circuit are listed, in milliseconds, and how many are shown.
_LIMITS_KEPT, _MAX_LIMITS = 86_400_000, 100


class ValkeyCircuits:
    """Decides by the store's clock, which all executors share. Tests may pass another clock."""

    def __init__(self, url: str, *, clock: Clock | None = None, seconds: float = _RESPONSE_SECONDS) -> None:
        """`seconds` is the longest wait for a connection and for each response."""
        self._url, self._clock, self._seconds = url, clock, seconds
        self._client: redis.asyncio.Redis | None = None
        self._script: Any = None

    async def close(self) -> None:
        """Close every connection."""
        if self._client is not None:
            await self._client.aclose()

    async def admit(self, name: str, config: CircuitConfig, party: str = "") -> Admission:
        """Decide about a call. Raises RedisError or OSError."""
        admitted, generation, wait, before, after, limited = await self._run(
            name, "admit", config, 0, CallOutcome.NONE, party
        )
        transition = _transition(before, after)
        return Admission(admitted == "1", int(generation), int(wait) / 1e3, transition, limited=limited == "1")

    async def limit(self, name: str, party: str, seconds: float) -> None:
        """Hold the calls of a party back. Raises RedisError or OSError."""
        client, milliseconds = self._connect(), max(1, round(seconds * 1e3))
        now = await self._now(client)
        async with client.pipeline(transaction=False) as pipeline:
            pipeline.set(_limit_key(name, party), 1, px=milliseconds)
            pipeline.zadd(_limits_key(name), {party: now + milliseconds})
            pipeline.zremrangebyscore(_limits_key(name), "-inf", now)
            # The longest limit is a day.
            pipeline.pexpire(_limits_key(name), _LIMITS_KEPT)
            pipeline.zadd(_index_key(name), {name: now})
            await pipeline.execute()

    async def report(
        self, name: str, config: CircuitConfig, generation: int, outcome: CallOutcome
    ) -> Transition | None:
        """Count an outcome. Raises RedisError or OSError."""
        *_, before, after, _ = await self._run(name, "report", config, generation, outcome)
        return _transition(before, after)

    async def half_open(self, namespace: str) -> list[tuple[str, Transition]]:
        """Half-open the open circuits of a namespace, and return their changes. Raises RedisError or OSError."""
        indexed: Any = await self._connect().zrange(_namespace_key(namespace), 0, -1)
        changes = []
        for name in (each.decode() for each in indexed):
            *_, before, after, _ = await self._run(name, "half_open", CircuitConfig(), 0, CallOutcome.NONE)
            if (transition := _transition(before, after)) is not None:
                changes.append((name, transition))
        return changes

    async def _run(
        self, name: str, verb: str, config: CircuitConfig, generation: int, outcome: CallOutcome, party: str = ""
    ) -> list[str]:
        now = "" if self._clock is None else str(round(self._clock.now().timestamp() * 1e3))
        limits = (config.failures, config.failure_rate, config.slow_rate)
        times = (round(config.window * 1e3), round(config.open_seconds * 1e3))
        arguments = [verb, now, *limits, *times, config.successes, config.max_canaries, generation, str(outcome)]
        keys = [PREFIX + name, _limit_key(name, party), _index_key(name), f"{PREFIX}changes:{name}"]
        self._connect()
        response: bytes = await self._script(keys=keys, args=[*arguments, name])
        return response.decode().split("|")

    async def find(self, namespace: str, *, after: str, limit: int) -> list[CircuitView]:
        """Return the circuits of a namespace by name, from behind a name on. Raises RedisError or OSError."""
        client = self._connect()
        indexed: Any = await client.zrange(_namespace_key(namespace), 0, -1)
        names = sorted(name.decode() for name in indexed)
        page = [name for name in names if name > after][:limit]
        now = await self._now(client)
        async with client.pipeline(transaction=False) as pipeline:
            for name in page:
                pipeline.get(PREFIX + name)
                pipeline.get(f"{PREFIX}changes:{name}")
                pipeline.zrange(_limits_key(name), -_MAX_LIMITS, -1, withscores=True)
            answers = await pipeline.execute()
        rows = zip(page, answers[0::3], answers[1::3], answers[2::3], strict=True)
        return [read_circuit(name, document, changes, limits, now) for name, document, changes, limits in rows]

    async def _now(self, client: redis.asyncio.Redis) -> int:
        """Return the time of the clock that decides, in milliseconds."""
        if self._clock is not None:
            return round(self._clock.now().timestamp() * 1e3)
        seconds, microseconds = await client.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    def _connect(self) -> redis.asyncio.Redis:
        if self._client is None:
            import redis.asyncio
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff

            pool = redis.asyncio.BlockingConnectionPool.from_url(
                self._url,
                max_connections=_CONNECTIONS,
                timeout=self._seconds,
                socket_connect_timeout=self._seconds,
                socket_timeout=self._seconds,
                retry=Retry(NoBackoff(), 0),
            )
            self._client = redis.asyncio.Redis(connection_pool=pool)
            self._script = self._client.register_script(SCRIPT)
        return self._client


def _limit_key(name: str, party: str) -> str:
    # No namespace, and so no circuit, has a colon.
    return f"{PREFIX}limited:{quote(party, safe='')}:{name}"


def _limits_key(name: str) -> str:
    return f"{PREFIX}limits:{name}"


def _index_key(name: str) -> str:
    return _namespace_key(name.partition("/")[0])


def _namespace_key(namespace: str) -> str:
    return f"{PREFIX}of:{namespace}"


def _transition(before: str, after: str) -> Transition | None:
    return Transition(CircuitState(before), CircuitState(after)) if after else None
