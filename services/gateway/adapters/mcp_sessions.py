"""Keeps MCP sessions in Redis, and tells every replica of changed sessions and cancelled requests."""

from __future__ import annotations

import asyncio
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
from libs.common.sealing import Seal, SealError
from libs.common.telemetry.log import Log
from services.gateway.mcp.context import ClientFacts
from services.gateway.mcp.session_changes import SessionChanges, session_digest

KEY, CLIENT_KEY, CHANNEL = "toolmesh:mcp:sessions:", "toolmesh:mcp:clients:", "toolmesh:mcp:control"
ANSWER_KEY, SUBSCRIPTIONS_KEY = "toolmesh:mcp:answers:", "toolmesh:mcp:subscriptions:"
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

    def __init__(self, url: str, seal: Seal, cancel: Callable[[str], None], changes: SessionChanges, log: Log) -> None:
        """`cancel` stops the requests with a key in this process."""
        self._seal = seal
        self._client = redis_client(url)
        self._listener = redis_client(url, _LISTEN_SECONDS + _ANSWER_SECONDS)
        self._cancel, self._changes, self._log = cancel, changes, log
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
                batch.zadd(KEY + owner, {session_digest(session): time.time()})
                batch.zremrangebyrank(KEY + owner, 0, -MAX_SESSIONS_OF_ONE - 1)
                batch.expire(KEY + owner, IDLE_SECONDS)
                batch.set(CLIENT_KEY + session_digest(session), msgspec.json.encode(client), ex=IDLE_SECONDS)
                await batch.execute()
        except (RedisError, OSError):
            raise unavailable() from None
        return session

    async def get(self, owner: str, session: str) -> ClientFacts | None:
        """Return what the client of a session said; what was read within five seconds is not read again."""
        key = (owner, session_digest(session))
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
                    batch.expire(SUBSCRIPTIONS_KEY + key[1], IDLE_SECONDS)
                    await batch.execute()
        except (RedisError, OSError):
            raise unavailable() from None
        client = msgspec.json.decode(stored, type=ClientFacts) if stored else ClientFacts()
        self._seen.put(key, (now, client))
        return client

    async def update(self, owner: str, session: str, client: ClientFacts) -> None:
        """Replace what the client said, and let every replica read it again."""
        digest = session_digest(session)
        try:
            await self._client.set(CLIENT_KEY + digest, msgspec.json.encode(client), ex=IDLE_SECONDS)
            self._seen.pop((owner, digest), None)
            await self._publish({"changed": [owner, digest]})
        except (RedisError, OSError):
            raise unavailable() from None

    async def end(self, owner: str, session: str) -> bool:
        """End a session here and on every replica."""
        digest = session_digest(session)
        self._seen.pop((owner, digest), None)
        try:
            async with self._client.pipeline(transaction=False) as batch:
                batch.zrem(KEY + owner, digest)
                batch.delete(CLIENT_KEY + digest, SUBSCRIPTIONS_KEY + digest)
                ended, _ = await batch.execute()
            await self._publish({"changed": [owner, digest]})
        except (RedisError, OSError):
            raise unavailable() from None
        return bool(ended)

    async def collect(self, question: str, key: str, answer: bytes, keys: Sequence[str]) -> dict[str, bytes] | None:
        """Implement `PartialAnswers.collect`: a key for each answer, sealed, for an hour."""
        given = _answer_key(question, key)
        try:
            async with self._client.pipeline(transaction=False) as batch:
                batch.set(given, self._seal.seal(answer, given), ex=PARTIAL_ANSWER_SECONDS)
                for each in keys:
                    batch.get(_answer_key(question, each))
                _, *stored = await batch.execute()
        except (RedisError, OSError):
            raise unavailable() from None
        answers = {each: self._open(sealed, question, each) for each, sealed in zip(keys, stored, strict=True)}
        opened = {each: answer for each, answer in answers.items() if answer is not None}
        return opened if len(opened) == len(answers) else None

    async def forget(self, question: str, keys: Sequence[str]) -> None:
        """Implement `PartialAnswers.forget`."""
        with suppress(RedisError, OSError):
            await self._client.delete(*(_answer_key(question, each) for each in keys))

    def _open(self, sealed: bytes | None, question: str, key: str) -> bytes | None:
        """Return a kept answer; None if there is none, or the key of its seal is gone: the client says it again."""
        try:
            return None if sealed is None else self._seal.open(sealed, _answer_key(question, key))
        except SealError:
            return None

    async def cancel(self, key: str) -> None:
        """Cancel requests here at once and on the other replicas."""
        self._cancel(key)
        try:
            await self._publish({"cancel": key})
        except (RedisError, OSError):
            raise unavailable() from None

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
            self._changes.signal_all()
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
            self._changes.signal(message["changed"][1])
        else:
            self._cancel(message["cancel"])


def redis_client(url: str, seconds: float = _ANSWER_SECONDS) -> redis.asyncio.Redis:
    """Return a client that waits so long for an answer."""
    return redis.asyncio.Redis.from_url(
        url,
        socket_connect_timeout=_ANSWER_SECONDS,
        socket_timeout=seconds,
        health_check_interval=int(_LISTEN_SECONDS),
        retry=Retry(NoBackoff(), 0),
    )


def _answer_key(question: str, key: str) -> str:
    return ANSWER_KEY + session_digest(f"{question}/{key}")


def unavailable() -> MeshError:
    """Return the error of a store that does not answer."""
    return MeshError(Reason.SERVICE_UNAVAILABLE, message="the sessions cannot be read now")
