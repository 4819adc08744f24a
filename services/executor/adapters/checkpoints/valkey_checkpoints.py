"""Micro checkpoints in Redis or Valkey, encrypted, until an hour after the newest one of their job.

The client library (8 MB) is imported on first use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from libs.common.sealing import Seal, SealError
from services.executor.adapters.checkpoints.postgres_checkpoints import seal_context
from services.executor.domain.checkpoints import errors
from services.executor.domain.checkpoints.checkpoint import Checkpoint
from services.executor.domain.checkpoints.ports import AddOutcome
from services.executor.domain.jobs.worker.run_checkpoints import MICRO_SECONDS

if TYPE_CHECKING:
    import redis.asyncio

T = TypeVar("T")
SCRIPT = Path(__file__).with_suffix(".lua").read_text()
_PREFIX = "toolmesh:executor:checkpoints:"
_CONNECTIONS = 16
_RESPONSE_SECONDS = 2.0
_ABOUT, _CONTENT = "about:", "content:"


class ValkeyCheckpoints:
    """The checkpoints of runs under way, and of those that ended less than an hour ago."""

    def __init__(self, url: str, seal: Seal, *, tenant_bytes: int, seconds: float = MICRO_SECONDS) -> None:
        self._url, self._seal, self._tenant_bytes, self._seconds = url, seal, tenant_bytes, seconds
        self._client: redis.asyncio.Redis | None = None

    async def close(self) -> None:
        """Close every connection."""
        if self._client is not None:
            await self._client.aclose()

    async def add(self, tenant: str, checkpoint: Checkpoint, content: bytes) -> AddOutcome:
        """Store a checkpoint, unless a later attempt stored one. Raises STATE_SERVER_UNAVAILABLE."""
        job, number = checkpoint.invocation_id, checkpoint.number
        keys = [_key(job), f"{_PREFIX}expiry:{tenant}", f"{_PREFIX}bytes:{tenant}"]
        sealed = self._seal.seal(content, seal_context(job, number))
        about = msgspec.json.encode(checkpoint)
        limits = (int(self._seconds), self._tenant_bytes)
        arguments = [checkpoint.attempt, number, checkpoint.parent_number, about, sealed, *limits, job]
        outcome = await self._ask(lambda client: client.eval(SCRIPT, len(keys), *keys, *arguments))
        return AddOutcome(outcome.decode())

    async def find(self, invocation_id: str) -> Sequence[Checkpoint]:
        """Return the checkpoints of a job, newest first. Raises STATE_SERVER_UNAVAILABLE."""
        fields = [field.decode() for field in await self._ask(lambda client: client.hkeys(_key(invocation_id)))]
        wanted = [field for field in fields if field.startswith(_ABOUT)]
        if not wanted:
            return []
        texts = await self._ask(lambda client: client.hmget(_key(invocation_id), wanted))
        found = [checkpoint for text in texts if text and (checkpoint := _described(text)) is not None]
        return sorted(found, key=lambda checkpoint: checkpoint.number, reverse=True)

    async def content(self, invocation_id: str, number: int) -> bytes | None:
        """Return what was stored; None if it is gone or cannot be decrypted. Raises STATE_SERVER_UNAVAILABLE."""
        sealed = await self._ask(lambda client: client.hget(_key(invocation_id), f"{_CONTENT}{number}"))
        try:
            return None if sealed is None else self._seal.open(sealed, seal_context(invocation_id, number))
        except SealError:
            return None

    async def delete(self, invocation_id: str, number: int) -> None:
        """Delete a checkpoint, and those that are differences to it. Raises STATE_SERVER_UNAVAILABLE."""
        gone = {number}
        for checkpoint in reversed(await self.find(invocation_id)):
            if checkpoint.parent_number in gone:
                gone.add(checkpoint.number)
        fields = [f"{prefix}{each}" for each in gone for prefix in (_ABOUT, _CONTENT)]
        await self._ask(lambda client: client.hdel(_key(invocation_id), *fields))

    async def _ask(self, command: Callable[[Any], Awaitable[T]]) -> T:
        from redis.exceptions import RedisError

        try:
            return await command(self._connect())
        except (RedisError, OSError) as error:
            raise errors.store_unavailable() from error

    def _connect(self) -> redis.asyncio.Redis:
        if self._client is None:
            import redis.asyncio
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff

            self._client = redis.asyncio.Redis.from_pool(
                redis.asyncio.BlockingConnectionPool.from_url(
                    self._url,
                    max_connections=_CONNECTIONS,
                    timeout=_RESPONSE_SECONDS,
                    socket_connect_timeout=_RESPONSE_SECONDS,
                    socket_timeout=_RESPONSE_SECONDS,
                    retry=Retry(NoBackoff(), 0),
                )
            )
        return self._client


def _described(text: bytes) -> Checkpoint | None:
    try:
        return msgspec.json.decode(text, type=Checkpoint)
    except msgspec.MsgspecError:
        return None


def _key(invocation_id: str) -> str:
    return f"{_PREFIX}{invocation_id}"
