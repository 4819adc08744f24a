"""Keeps the resources that MCP sessions subscribed to in Redis, sealed."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
from redis.exceptions import RedisError

from libs.common.errors import MeshError, Reason
from libs.common.sealing import Seal, SealError
from services.gateway.adapters.mcp_sessions import CHANNEL, IDLE_SECONDS, SUBSCRIPTIONS_KEY, redis_client, unavailable
from services.gateway.mcp.session_changes import session_digest

MAX_SUBSCRIPTIONS = 32
"""Of one session, as many as one watch of the executor has."""


class RedisSubscriptions:
    """Implements Subscriptions: a hash for each session, with a field for each resource of an upstream."""

    def __init__(self, url: str, seal: Seal) -> None:
        self._client, self._seal = redis_client(url), seal

    async def close(self) -> None:
        """Disconnect."""
        await self._client.aclose()

    async def add(self, owner: str, session: str, namespace: str, uri: str) -> None:
        """Implement `Subscriptions.add`."""
        key, field = _key(session), _field(namespace, uri)
        content = self._seal.seal(orjson.dumps([namespace, uri]), key)
        try:
            async with self._client.pipeline(transaction=False) as batch:
                batch.hset(key, field, content)
                batch.hlen(key)
                batch.expire(key, IDLE_SECONDS)
                added, count, _ = await batch.execute()
            if added and count > MAX_SUBSCRIPTIONS:
                await self._client.hdel(key, field)
                message = f"a session has at most {MAX_SUBSCRIPTIONS} subscriptions"
                raise MeshError(Reason.RATE_LIMITED, message=message)
            await self._publish(owner, session)
        except (RedisError, OSError):
            raise unavailable() from None

    async def remove(self, owner: str, session: str, namespace: str, uri: str) -> None:
        """Implement `Subscriptions.remove`."""
        try:
            await self._client.hdel(_key(session), _field(namespace, uri))
            await self._publish(owner, session)
        except (RedisError, OSError):
            raise unavailable() from None

    async def list(self, session: str, namespace: str) -> frozenset[str]:
        """Implement `Subscriptions.list`."""
        key = _key(session)
        try:
            values = await self._client.hvals(key)
        except (RedisError, OSError):
            raise unavailable() from None
        found = (self._open(value, key) for value in values)
        return frozenset(uri for upstream, uri in found if upstream == namespace)

    def _open(self, value: Any, key: str) -> tuple[str, str]:
        """Return the namespace and the address; empty ones if the key of the seal is gone."""
        try:
            return msgspec.json.decode(self._seal.open(value, key), type=tuple[str, str])
        except SealError:
            return "", ""

    async def _publish(self, owner: str, session: str) -> None:
        await self._client.publish(CHANNEL, orjson.dumps({"changed": [owner, session_digest(session)]}))


def _key(session: str) -> str:
    return SUBSCRIPTIONS_KEY + session_digest(session)


def _field(namespace: str, uri: str) -> str:
    return session_digest(f"{namespace} {uri}")
