"""Keeps MCP sessions in Redis, and tells every replica of changed sessions and cancelled requests."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import orjson
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from libs.common.errors import MeshError, Reason
from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.telemetry.log import Log
from services.gateway.mcp.context import ClientFacts

KEY, CLIENT_KEY, CHANNEL = "toolmesh:mcp:sessions:", "toolmesh:mcp:clients:", "toolmesh:mcp:control"
ANSWER_KEY = "toolmesh:mcp:answers:"
IDLE_SECONDS = 24 * 3600
# A question of which a part stays unanswered for longer is not answered at all.
PARTIAL_ANSWER_SECONDS = 3600
MAX_SESSIONS_OF_ONE = 1000
CACHE_SECONDS = 5.0
_REFRESH_SECONDS = 600.0
_MAX_CACHED = 20_000
_ANSWER_SECONDS, _LISTEN_SECONDS, _PAUSE_SECONDS = 1.0, 30.0, 1.0


class RedisSessions:
    """A sorted set for each owner: the digests of its sessions by the time of their last use. Beside it, a key for each
    session: what its client said of itself.

    The owner is read from the caller's token, so a session's id is of no use to any other caller.
    """

    def __init__(self, url: str, cancel: Callable[[str], None], log: Log) -> None:
        """`cancel` stops the requests with a key in this process."""
        self._client = _client(url, _ANSWER_SECONDS)
        self._listener = _client(url, _LISTEN_SECONDS + _ANSWER_SECONDS)
        self._cancel, self._log = cancel, log
        self._seen: BoundedCache[tuple[str, str], tuple[float, ClientFacts]] = BoundedCache(_MAX_CACHED)
        self._task: asyncio.Task[None] | None = None
        self._answering = True
        self.subscribed = asyncio.Event()

    async def start(self) -> None:
        """Start to listen to the other replicas; does not wait for Redis."""
        self._task = asyncio.create_task(self._listen_forever(), name="mcp-control")

    async def stop(self) -> None:
        """Stop listening, and disconnect."""
        while self._task is not None and not self._task.done():
            self._task.cancel()
            # The client sometimes turns a cancellation into an error of its own, and the loop would go on.
            await asyncio.wait({self._task}, timeout=0.1)
        await self._client.aclose()
        await self._listener.aclose()

    async def open(self, owner: str, client: ClientFacts) -> str:
        """Begin a session. Of an owner with more than 1000 the longest unused ones end."""
        session = secrets.token_urlsafe(24)
        try:
            async with self._client.pipeline(transaction=False) as batch:
                batch.zadd(KEY + owner, {_digest(session): time.time()})
                batch.zremrangebyrank(KEY + owner, 0, -MAX_SESSIONS_OF_ONE - 1)
                batch.expire(KEY + owner, IDLE_SECONDS)
                batch.set(CLIENT_KEY + _digest(session), msgspec.json.encode(client), ex=IDLE_SECONDS)
                await batch.execute()
        except (RedisError, OSError):
            raise _unavailable() from None
        return session

    async def get(self, owner: str, session: str) -> ClientFacts | None:
        """Return what the client of a session said; what was read within five seconds is not read again."""
        key = (owner, _digest(session))
        now = time.monotonic()
        cached = self._seen.get(key)
        if cached is not None and cached[0] > now - CACHE_SECONDS:
            return cached[1]
        try:
            async with self._client.pipeline(transaction=False) as batch:
                batch.zscore(KEY + owner, key[1])
                batch.get(CLIENT_KEY + key[1])
                used_at, stored = await batch.execute()
            if used_at is None or used_at < time.time() - IDLE_SECONDS:
                return None
            if used_at < time.time() - _REFRESH_SECONDS:
                async with self._client.pipeline(transaction=False) as batch:
                    # Only if it is still there: another request may have ended it.
                    batch.zadd(KEY + owner, {key[1]: time.time()}, xx=True)
                    batch.expire(KEY + owner, IDLE_SECONDS)
                    batch.expire(CLIENT_KEY + key[1], IDLE_SECONDS)
                    await batch.execute()
        except (RedisError, OSError):
            raise _unavailable() from None
        client = msgspec.json.decode(stored, type=ClientFacts) if stored else ClientFacts()
        self._seen.put(key, (now, client))
        return client

    async def update(self, owner: str, session: str, client: ClientFacts) -> None:
        """Replace what the client said, and let every replica read it again."""
        digest = _digest(session)
        try:
            await self._client.set(CLIENT_KEY + digest, msgspec.json.encode(client), ex=IDLE_SECONDS)
            self._seen.pop((owner, digest), None)
            await self._publish({"changed": [owner, digest]})
        except (RedisError, OSError):
            raise _unavailable() from None

    async def end(self, owner: str, session: str) -> bool:
        """End a session here and on every replica."""
        digest = _digest(session)
        self._seen.pop((owner, digest), None)
        try:
            async with self._client.pipeline(transaction=False) as batch:
                batch.zrem(KEY + owner, digest)
                batch.delete(CLIENT_KEY + digest)
                ended, _ = await batch.execute()
            await self._publish({"changed": [owner, digest]})
        except (RedisError, OSError):
            raise _unavailable() from None
        return bool(ended)

    async def collect(self, question: str, key: str, answer: bytes, keys: Sequence[str]) -> dict[str, bytes] | None:
        """Implement `PartialAnswers.collect`: a key for each answer, for an hour."""
        try:
            async with self._client.pipeline(transaction=False) as batch:
                batch.set(_answer_key(question, key), answer, ex=PARTIAL_ANSWER_SECONDS)
                for each in keys:
                    batch.get(_answer_key(question, each))
                _, *stored = await batch.execute()
        except (RedisError, OSError):
            raise _unavailable() from None
        return None if None in stored else dict(zip(keys, stored, strict=True))

    async def forget(self, question: str, keys: Sequence[str]) -> None:
        """Implement `PartialAnswers.forget`."""
        with suppress(RedisError, OSError):
            await self._client.delete(*(_answer_key(question, each) for each in keys))

    async def cancel(self, key: str) -> None:
        """Cancel requests here at once and on the other replicas."""
        self._cancel(key)
        try:
            await self._publish({"cancel": key})
        except (RedisError, OSError):
            raise _unavailable() from None

    async def _publish(self, message: dict[str, Any]) -> None:
        await self._client.publish(CHANNEL, orjson.dumps(message))

    async def _listen_forever(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:
                if self._answering:
                    self._log.warning("redis does not answer", loop="mcp-control", error=type(error).__name__)
                self._answering = False
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _listen(self) -> None:
        async with self._listener.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe(CHANNEL)
            # Messages may have been missed.
            self._seen.clear()
            self._answering = True
            self.subscribed.set()
            try:
                while True:
                    message = await pubsub.get_message(timeout=_LISTEN_SECONDS)
                    if message:
                        self._apply(orjson.loads(message["data"]))
            finally:
                self.subscribed.clear()

    def _apply(self, message: dict[str, Any]) -> None:
        if "changed" in message:
            self._seen.pop(tuple(message["changed"]), None)
        else:
            self._cancel(message["cancel"])


def _client(url: str, seconds: float) -> redis.asyncio.Redis:
    return redis.asyncio.Redis.from_url(
        url,
        socket_connect_timeout=_ANSWER_SECONDS,
        socket_timeout=seconds,
        health_check_interval=int(_LISTEN_SECONDS),
        retry=Retry(NoBackoff(), 0),
    )


def _answer_key(question: str, key: str) -> str:
    return ANSWER_KEY + _digest(f"{question}/{key}")


def _digest(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()


def _unavailable() -> MeshError:
    return MeshError(Reason.SERVICE_UNAVAILABLE, message="the sessions cannot be read now")
