"""The wakeup between replicas: a channel that carries nothing but the fact that something changed."""

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
    """Rings in this process at once and in all others through the channel. A dead bus is logged once and tried again;
    nobody waits for it, because every replica also looks by itself."""

    def __init__(self, url: str, channel: str, wake: Callable[[], None], log: Log) -> None:
        self._client = redis.asyncio.Redis.from_url(
            url,
            socket_connect_timeout=_CONNECT_SECONDS,
            socket_timeout=_LISTEN_SECONDS + _CONNECT_SECONDS,
            health_check_interval=int(_LISTEN_SECONDS),
            # The loops below try again themselves, and they know when to stop.
            retry=Retry(NoBackoff(), 0),
        )
        self._channel, self._wake, self._log = channel, wake, log
        self._rung = asyncio.Event()
        self._answering = True
        self._tasks: list[asyncio.Task[None]] = []
        self.subscribed = asyncio.Event()

    async def start(self) -> None:
        """Begin to ring and to listen; returns at once, whether or not the bus is there."""
        loops = {"wakeup-publisher": self._publish, "wakeup-subscriber": self._listen}
        self._tasks = [asyncio.create_task(self._forever(name, step), name=name) for name, step in loops.items()]

    async def stop(self) -> None:
        """Stop ringing and listening."""
        pending = set(self._tasks)
        while pending:
            for task in pending:
                task.cancel()
            # The client sometimes answers a cancellation with an error of its own, and the loop would go on.
            _, pending = await asyncio.wait(pending, timeout=0.1)
        await self._client.aclose()

    def notify(self) -> None:
        """Tell every replica, this one at once. Rings that come while one is on its way become one."""
        self._wake()
        self._rung.set()

    async def _forever(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await step()
            except Exception as error:
                if self._answering:
                    self._log.warning("bus does not answer", loop=name, error=type(error).__name__)
                self._answering = False
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _publish(self) -> None:
        await self._rung.wait()
        self._rung.clear()
        try:
            await self._client.publish(self._channel, b"changed")
        except (RedisError, OSError):
            self._rung.set()
            raise

    async def _listen(self) -> None:
        async with self._client.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe(self._channel)
            self.subscribed.set()
            self._answering = True
            # Whatever rang before this moment went unheard.
            self._wake()
            try:
                while True:
                    if await pubsub.get_message(timeout=_LISTEN_SECONDS):
                        self._wake()
            finally:
                self.subscribed.clear()
