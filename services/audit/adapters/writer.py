"""The end of the log in PostgreSQL, in a thread and on a connection of its own.

A blocking connection costs a third of an asynchronous one for a small statement; its thread keeps the event loop free.
A commit is one statement (commit.py). Only what is rare takes more: another replica came first, a shard is full, or a record
is so old that a closed shard may hold it already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

import psycopg
from psycopg.errors import UniqueViolation

from libs.common.clock import Clock
from libs.common.errors import MeshError
from libs.common.telemetry.log import Log
from services.audit.adapters.commit import Connection, connect, insert, read_head
from services.audit.domain.errors import log_unavailable
from services.audit.domain.evidence.errors import refused
from services.audit.domain.evidence.model import ShardLimits, ShardLink
from services.audit.domain.evidence.ports import Scribe
from services.audit.domain.merkle import CompactRange
from services.audit.domain.model import EPOCH, Appended, Entry, TreeHead
from services.audit.domain.note import Origin

# How far a writer's clock may be ahead. A record of a later moment than this behind a shard's opening was made after it,
# and cannot be in an older shard.
SKEW = timedelta(hours=1)
_DUPLICATE = "_record_id_key"
_REFUSED = "TM001"
_PLACES = "select record_id, sequence from records where record_id = any(%s::text[])"
_OLDER_PLACES = f"""
{_PLACES} and shard = any(array(select number from shards where close_time >= %s and drop_time is null))
"""  # noqa: S608  (a constant)

T = TypeVar("T")


class PostgresWriter:
    """Appends to the log and keeps it. What it knows of the head is replaced only by what the database has committed."""

    def __init__(
        self, url: str, log: Log, *, scribe: Scribe, clock: Clock, limits: ShardLimits, origin: Origin
    ) -> None:
        self._url, self._log, self._scribe, self._clock = url, log, scribe, clock
        self._limits, self._origin = limits, origin
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit-writer")
        self._connection: Connection | None = None
        self._head: TreeHead | None = None

    async def start(self) -> None:
        """Connect and learn the head."""
        await self._in_thread(self._ready)

    async def stop(self) -> None:
        """Let go of the connection."""
        await self._in_thread(self._forget)
        self._thread.shutdown(wait=False)

    # ---- appending

    async def append(self, entries: Sequence[Entry]) -> Appended:
        """Keep the promise of the port."""
        return await self._in_thread(lambda: self._guarded(lambda: self._append(entries)))

    def _append(self, entries: Sequence[Entry]) -> Appended:
        given: dict[str, Entry] = {}
        for entry in entries:
            given.setdefault(entry.record_id, entry)
        fresh: Mapping[str, Entry] = given
        places: dict[str, int] = {}
        while fresh:
            try:
                known, first = self._commit(fresh)
                fresh = _without(fresh, known)
                places.update(known)
                places.update((record_id, sequence) for sequence, record_id in enumerate(fresh, start=first))
                break
            except UniqueViolation as error:
                # Somebody sent these before. That is rare, so nobody looks for it until it shows.
                found = self._places_of(fresh) if str(error.diag.constraint_name).endswith(_DUPLICATE) else {}
                if not found:
                    raise
                places.update(found)
                fresh = _without(fresh, found)
        return Appended([places[entry.record_id] for entry in entries], len(fresh), self._ready()[1].size)

    def _commit(self, fresh: Mapping[str, Entry]) -> tuple[dict[str, int], int]:
        """Store what is new; return the places of what older shards hold, and the place of the first that is new."""
        connection, head = self._ready()
        if not self._full(head):
            known = _in_older_shards(connection, head, fresh)
            grown = _stored(connection, head, _without(fresh, known))
            if grown is not None:
                self._head = grown
                return known, head.size
        # A busy replica would win every race against one that first has to read the head; the lock gives it its turn.
        with connection.transaction():
            head = read_head(connection, lock=True)
            if self._full(head):
                head = self._opened(connection, head)
            known = _in_older_shards(connection, head, fresh)
            grown = _locked(_stored(connection, head, _without(fresh, known)))
        self._head = grown
        return known, head.size

    def _places_of(self, fresh: Mapping[str, Entry]) -> dict[str, int]:
        connection, _ = self._ready()
        return dict(connection.execute(_PLACES, (list(fresh),)).fetchall())

    # ---- shards

    def _full(self, head: TreeHead) -> bool:
        if not head.tree.size:
            return False
        age = (self._clock.now() - head.open_time).total_seconds()
        return head.tree.size >= self._limits.records or age >= self._limits.seconds

    def _opened(self, connection: Connection, head: TreeHead) -> TreeHead:
        """Close the shard of a locked head; return the head of the next, whose first record names the one before."""
        origin, root = self._origin(head.log_id, head.shard), head.tree.root()
        link = ShardLink(head.shard, head.first_sequence, head.tree.size, root, origin)
        row = connection.execute("select open_shard(%s, %s, %s)", (head.shard, head.size, root)).fetchone()
        if row is None:
            raise psycopg.DataError("the shard was not opened")
        begun = TreeHead(head.log_id, CompactRange(), head.shard + 1, head.size, row[0])
        return _locked(insert(connection, begun, [self._scribe.shard_opened(link)]))

    # ---- keeping

    async def close_shard(self, number: int) -> int:
        """Keep the promise of the port."""
        return await self._in_thread(lambda: self._guarded(lambda: self._close_shard(number)))

    async def place_hold(self, entry: Entry) -> int:
        """Keep the promise of the port."""
        return await self._change(entry, "select place_hold(%s)")

    async def release_hold(self, entry: Entry) -> int:
        """Keep the promise of the port."""
        return await self._change(entry, "select release_hold(%s)")

    async def erase_payload(self, entry: Entry) -> int:
        """Keep the promise of the port."""
        return await self._change(entry, "select erase_payload(%s)")

    async def archive_shard(self, entry: Entry) -> int:
        """Keep the promise of the port."""
        return await self._change(entry, "select archive_shard(%s)")

    async def drop_shard(self, entry: Entry, *, years: int) -> int:
        """Keep the promise of the port."""
        return await self._change(entry, f"select drop_shard(%s, {years:d})", before="select lock_for_drop()")

    def _close_shard(self, number: int) -> int:
        connection, _ = self._ready()
        with connection.transaction():
            head = read_head(connection, lock=True)
            if head.shard != number:
                raise refused("shard_moved")
            if not head.tree.size:
                raise refused("shard_empty")
            grown = self._opened(connection, head)
        self._head = grown
        return grown.first_sequence

    async def _change(self, entry: Entry, statement: str, before: str = "") -> int:
        return await self._in_thread(lambda: self._guarded(lambda: self._recorded(entry, statement, before)))

    def _recorded(self, entry: Entry, statement: str, before: str) -> int:
        """Append the entry and make the change that it records, which finds it by its place."""
        connection, _ = self._ready()
        with connection.transaction():
            if before:
                connection.execute(before)
            head = read_head(connection, lock=True)
            grown = _locked(insert(connection, head, [entry]))
            connection.execute(statement, (head.size,))
        self._head = grown
        return head.size

    # ---- the connection

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except psycopg.Error as error:
            raise self._failure(error) from error

    def _failure(self, error: psycopg.Error) -> MeshError:
        if error.sqlstate == _REFUSED:
            return refused(error.diag.message_detail or "")
        # The statement may have been committed or not; only the database knows, so it is asked before the next one.
        self._forget()
        self._log.error("commit failed", cause=error)
        return log_unavailable()

    def _ready(self) -> tuple[Connection, TreeHead]:
        if self._connection is None:
            self._connection = connect(self._url)
        if self._head is None:
            self._head = read_head(self._connection)
        return self._connection, self._head

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._head = None


def _in_older_shards(connection: Connection, head: TreeHead, fresh: Mapping[str, Entry]) -> dict[str, int]:
    """Return the places of those entries that shards before the open one hold; they are asked only when they could."""
    if not head.shard:
        return {}
    old = {record_id: e.event_time for record_id, e in fresh.items() if e.event_time <= head.open_time + SKEW}
    if not old:
        return {}
    return dict(connection.execute(_OLDER_PLACES, (list(old), max(min(old.values()), EPOCH) - SKEW)).fetchall())


def _stored(connection: Connection, head: TreeHead, fresh: Mapping[str, Entry]) -> TreeHead | None:
    return insert(connection, head, list(fresh.values())) if fresh else head


def _without(fresh: Mapping[str, Entry], known: Mapping[str, int]) -> Mapping[str, Entry]:
    return {record_id: entry for record_id, entry in fresh.items() if record_id not in known} if known else fresh


def _locked(grown: TreeHead | None) -> TreeHead:
    if grown is None:
        raise psycopg.DataError("the head of the tree moved under its lock")
    return grown
