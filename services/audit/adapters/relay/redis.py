"""Relays to a Redis stream, for development and small meshes.

The entry id is the record's sequence, and a stream accepts only rising ids: it refuses repeated events itself, so
readers see every record once. The stream has a bounded length; older records are read from the log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from services.audit.domain.errors import SinkError
from services.audit.domain.log.yield_every import yield_every
from services.audit.domain.relay.cloudevent import CloudEvent
from services.audit.domain.relay.moments import MAX_MOMENTS

PREFIX = "toolmesh:audit:"
STREAM_LENGTH = 10_000
_CONNECT_SECONDS = 2.0
_RESPONSE_TIMEOUT_SECONDS = 10.0
# One command for all entries returns the indexes of refused ones; a command per entry would cost several times as much.
# The entries are one packed argument, because redis-py encodes many arguments slowly and blocks the event loop
# meanwhile. A stream that lost its end, by eviction or failover, accepts nothing: the gap would never be filled.
_ADD_SCRIPT = """
local reached, known = -1, redis.pcall('XINFO', 'STREAM', KEYS[1])
for field = 1, #known, 2 do
    if known[field] == 'last-generated-id' then
        reached = tonumber(string.match(known[field + 1], '^%d+'))
    end
end
if reached + 1 < tonumber(ARGV[3]) then
    return false
end
local entries, offset, number, refused = ARGV[2], 1, 0, {}
while offset <= #entries do
    local id, leaf, event
    id, leaf, event, offset = struct.unpack('>I4c0I4c0I4c0', entries, offset)
    local reply = redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], id, 'leaf', leaf, 'event', event)
    if type(reply) == 'table' and reply.err then
        refused[#refused + 1] = number
    end
    number = number + 1
end
return refused
"""
_length = Struct(">I").pack


class RedisSink:
    """Implements RelaySink with one stream per log."""

    def __init__(self, url: str, *, length: int = STREAM_LENGTH) -> None:
        self._url, self._length = url, length
        self._client: redis.asyncio.Redis | None = None
        self._add: Any = None
        self._stream = ""
        self._reached = 0
        """The sequence after the last one that the stream is known to have."""

    @property
    def name(self) -> str:
        """The name under which the position is stored."""
        return "redis"

    async def open(self, log_id: str, position: int) -> int:
        """Implement `RelaySink.open`. A stream that lost its end is refilled, up to its length."""
        self._stream = PREFIX + log_id
        self._client = redis.asyncio.Redis.from_url(
            self._url,
            socket_connect_timeout=_CONNECT_SECONDS,
            socket_timeout=_RESPONSE_TIMEOUT_SECONDS,
            # Retries of unknown outcome are decided by the relay.
            retry=Retry(NoBackoff(), 0),
        )
        self._add = self._client.register_script(_ADD_SCRIPT)
        with _as_sink_error():
            self._reached = await self._end_of_stream(self._client)
        return min(position, max(self._reached, position - self._length))

    async def publish(self, events: Sequence[CloudEvent]) -> None:
        """Implement `RelaySink.publish`. One script adds all entries, so none overtakes another. It fails if the stream
        lost entries; opening it again refills it."""
        if self._client is None or self._add is None:
            raise SinkError("the sink is closed")
        arguments = [self._length, await _pack_entries(events), self._reached]
        with _as_sink_error():
            refused_indexes = await self._add(keys=[self._stream], args=arguments)
            if refused_indexes is None:
                raise SinkError("the stream lost acknowledged entries")
            if refused_indexes:
                await self._require_repeats(self._client, [events[index] for index in refused_indexes])
        self._reached = max(self._reached, events[-1].sequence + 1)

    async def erase(self, sequences: Sequence[int]) -> None:
        """Implement `RelaySink.erase`. The last id of the stream stays known, so that no entry is added again."""
        if self._client is None:
            raise SinkError("the sink is closed")
        with _as_sink_error():
            # The moments of an invocation go with its record.
            parts = range(1, MAX_MOMENTS + 2)
            names = [_entry_id(sequence, part) for sequence in sequences for part in parts]
            await self._client.xdel(self._stream, *names)

    async def close(self) -> None:
        """Implement `RelaySink.close`."""
        client, self._client, self._add = self._client, None, None
        if client is not None:
            with contextlib.suppress(RedisError, OSError):
                await client.aclose()

    async def _end_of_stream(self, client: redis.asyncio.Redis) -> int:
        """Return the sequence after the last one that the stream ever had."""
        if not await client.exists(self._stream):
            return 0
        stream: Any = await client.xinfo_stream(self._stream)
        return int(stream["last-generated-id"].partition(b"-")[0]) + 1

    async def _require_repeats(self, client: redis.asyncio.Redis, refused: Sequence[CloudEvent]) -> None:
        """Raise unless the refused events are repeats of stored ones."""
        if await self._end_of_stream(client) <= refused[-1].sequence:
            raise SinkError("the stream refused an entry that it does not have")
        first, last = (_entry_id(event.sequence, event.part) for event in (refused[0], refused[-1]))
        held: Any = dict(await client.xrange(self._stream, first, last) or [])
        for event in refused:
            entry = held.get(_entry_id(event.sequence, event.part).encode())
            # Missing entries were trimmed; existing ones must be the same record.
            if entry is not None and entry[b"leaf"] != event.leaf_hash:
                raise SinkError(
                    f"the stream has another record at sequence {event.sequence}: its log was restored or forked"
                )


async def _pack_entries(events: Sequence[CloudEvent]) -> bytes:
    """Return the entries concatenated, each value after its length."""
    parts: list[bytes] = []
    async for event in yield_every(events):
        name, leaf, body = _entry_id(event.sequence, event.part).encode(), event.leaf_hash, event.body
        parts += (_length(len(name)), name, _length(len(leaf)), leaf, _length(len(body)), body)
    return b"".join(parts)


def _entry_id(sequence: int, part: int) -> str:
    return f"{sequence}-{part}"


@contextlib.contextmanager
def _as_sink_error() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError, TimeoutError) as error:
        raise SinkError(f"the stream is unavailable: {type(error).__name__}") from error
