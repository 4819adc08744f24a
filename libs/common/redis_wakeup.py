"""Wakes the other replicas through a Redis channel that carries no data."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from libs.common.telemetry.log import Log

_PAUSE_SECONDS = 1.0
_CONNECT_SECONDS = 1.0
_LISTEN_SECONDS = 30.0


class RedisWakeup:
    """Wakes this process at once and all others through the channel.

    An unreachable Redis is logged once and retried. Nothing waits for it, because every replica also polls.
    """

    def __init__(self, url: str, channel: str, wake: Callable[[], None], log: Log) -> None:
        self._client = redis.asyncio.Redis.from_url(
            url,
            socket_connect_timeout=_CONNECT_SECONDS,
            socket_timeout=_LISTEN_SECONDS + _CONNECT_SECONDS,
            health_check_interval=int(_LISTEN_SECONDS),
            # The loops below retry by themselves.
            retry=Retry(NoBackoff(), 0),
        )
        self._channel, self._wake, self._log = channel, wake, log
        self._pending = asyncio.Event()
        self._answering = True
        self._tasks: list[asyncio.Task[None]] = []
        self.subscribed = asyncio.Event()

    async def start(self) -> None:
        """Start publishing and listening; does not wait for Redis."""
        loops = {"wakeup-publisher": self._publish, "wakeup-subscriber": self._listen}
        self._tasks = [asyncio.create_task(self._forever(name, step), name=name) for name, step in loops.items()]

    async def stop(self) -> None:
        """Stop publishing and listening."""
        pending = set(self._tasks)
        while pending:
            for task in pending:
                task.cancel()
            # The client sometimes turns a cancellation into an error of its own, and the loop would go on.
            _, pending = await asyncio.wait(pending, timeout=0.1)
        await self._client.aclose()

    def notify(self) -> None:
        """Wake every replica, this one at once. Concurrent notifications are merged."""
        self._wake()
        self._pending.set()

    async def _forever(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await step()
            except Exception as error:
                if self._answering:
                    self._log.warning("redis does not answer", loop=name, error=type(error).__name__)
                self._answering = False
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _publish(self) -> None:
        await self._pending.wait()
        self._pending.clear()
        try:
            await self._client.publish(self._channel, b"changed")
        except (RedisError, OSError):
            self._pending.set()
            raise

    async def _listen(self) -> None:
        async with self._client.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe(self._channel)
            self.subscribed.set()
            self._answering = True
            # Earlier notifications were missed.
            self._wake()
            try:
                while True:
                    if await pubsub.get_message(timeout=_LISTEN_SECONDS):
                        self._wake()
            finally:
                self.subscribed.clear()
