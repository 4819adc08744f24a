"""The end of the log in PostgreSQL, on a connection of its own.

A commit is one statement (commit.py), which the event loop waits for (quick.py). Only what is rare takes more: another
replica came first, a shard is full, a record came twice, or is so old that a closed shard may hold it already. All of that
happens in a thread, where it may take its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import psycopg
from psycopg.errors import UniqueViolation

from libs.common.errors import MeshError
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.audit.adapters.log.async_pq import Line
from services.audit.adapters.log.commit import Connection, Draft, connect, draft, insert, read_head
from services.audit.adapters.log.entry_locations import (
    appended,
    by_id,
    in_older_shards,
    perhaps_older,
    places_of,
    without,
)
from services.audit.domain.errors import log_unavailable
from services.audit.domain.evidence.errors import refused
from services.audit.domain.evidence.model import ShardLimits, ShardLink
from services.audit.domain.evidence.ports import Scribe
from services.audit.domain.merkle.merkle import CompactRange
from services.audit.domain.merkle.note import Origin
from services.audit.domain.model import Appended, Entry, Stored, TreeHead

_DUPLICATE = "_record_id_key"
_REFUSED = "TM001"

T = TypeVar("T")


class PostgresWriter:
    """Appends to the log and keeps it. What it knows of the head is replaced only by what the database has committed."""

    def __init__(
        self, url: str, log: Log, *, scribe: Scribe, clock: Clock, limits: ShardLimits, origin: Origin
    ) -> None:
        self._url, self._log, self._scribe, self._clock = url, log, scribe, clock
        self._limits, self._origin = limits, origin
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit-writer")
        self._turn = asyncio.Lock()
        self._connection: Connection | None = None
        self._line: Line | None = None
        self._head: TreeHead | None = None
        self._drafted: Draft | None = None
        """The commit under way, or the one made ready to follow it."""

    async def start(self) -> None:
        """Connect and learn the head."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._ready)

    async def stop(self) -> None:
        """Let go of the connection."""
        await self._alone(self._forget)
        self._thread.shutdown(wait=False)

    # ---- appending

    async def append(self, entries: Sequence[Entry]) -> Appended:
        """Keep the promise of the port."""
        async with self._turn:
            done = await self._quickly(entries)
        if done is not None:
            return done
        return await self._alone(lambda: self._append(entries))

    async def _quickly(self, entries: Sequence[Entry]) -> Appended | None:
        """Commit with one statement, if that is all it takes; None if it takes more, and nothing was stored."""
        connection, head = self._connection, self._head
        if connection is None or head is None or self._full(head) or perhaps_older(head, entries):
            return None
        if len({entry.record_id for entry in entries}) < len(entries):
            return None
        drafted = self._drafted_for(head, entries)
        try:
            if self._line is None:
                self._line = Line(connection.pgconn)
            result = await self._line.execute_prepared(drafted.statement, drafted.parameters)
            made = drafted.made(result)
        except UniqueViolation:
            return None
        except psycopg.Error as error:
            self._leave_line()
            raise self._failure(error) from error
        except BaseException:
            # What becomes of the statement is not known, nor is what the connection would say next.
            self._leave_line()
            self._forget()
            raise
        if self._drafted is drafted:
            self._drafted = None
        # Without a result, another replica came first; the head is read anew.
        self._head, stored = made or (None, None)
        return appended(entries, {}, stored, self._head.size) if self._head else None

    def foresee(self, entries: Sequence[Entry]) -> None:
        """Keep the promise of the port: draft the next commit as if the one under way succeeded, which it nearly always does."""
        if self._drafted is not None:
            self._drafted = draft(self._drafted.grown, entries)

    def _drafted_for(self, head: TreeHead, entries: Sequence[Entry]) -> Draft:
        """Return the commit of the entries, and remember it as the one under way. What was foreseen holds only behind the head
        that it was foreseen for."""
        drafted = self._drafted
        if drafted is None or drafted.entries is not entries or drafted.head != head:
            drafted = self._drafted = draft(head, entries)
        return drafted

    def _append(self, entries: Sequence[Entry]) -> Appended:
        fresh: Mapping[str, Entry] = by_id(entries)
        places: dict[str, int] = {}
        stored: Stored | None = None
        while fresh:
            try:
                known, stored = self._commit(fresh)
                places.update(known)
                break
            except UniqueViolation as error:
                # Somebody sent these before. That is rare, so nobody looks for it until it shows.
                twice = str(error.diag.constraint_name).endswith(_DUPLICATE)
                found = places_of(self._ready()[0], fresh) if twice else {}
                if not found:
                    raise
                places.update(found)
                fresh = without(fresh, found)
        return appended(entries, places, stored, self._ready()[1].size)

    def _commit(self, fresh: Mapping[str, Entry]) -> tuple[dict[str, int], Stored | None]:
        """Store what is new; return the places of what older shards hold, and what was stored."""
        connection, head = self._ready()
        if not self._full(head):
            known = in_older_shards(connection, head, fresh)
            stored = _stored(connection, head, without(fresh, known))
            if stored is not None:
                self._head = stored[0]
                return known, stored[1]
        # A busy replica would win every race against one that first has to read the head; the lock gives it its turn.
        with connection.transaction():
            head = read_head(connection, lock=True)
            if self._full(head):
                head = self._opened(connection, head)
            known = in_older_shards(connection, head, fresh)
            grown, new = _locked(_stored(connection, head, without(fresh, known)))
        self._head = grown
        return known, new

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
        return _locked(insert(connection, begun, [self._scribe.shard_opened(link)]))[0]

    # ---- keeping

    async def close_shard(self, number: int) -> int:
        """Keep the promise of the port."""
        return await self._alone(lambda: self._close_shard(number))

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
        return await self._alone(lambda: self._recorded(entry, statement, before))

    def _recorded(self, entry: Entry, statement: str, before: str) -> int:
        """Append the entry and make the change that it records, which finds it by its place."""
        connection, _ = self._ready()
        with connection.transaction():
            if before:
                connection.execute(before)
            head = read_head(connection, lock=True)
            grown, _ = _locked(insert(connection, head, [entry]))
            connection.execute(statement, (head.size,))
        self._head = grown
        return head.size

    # ---- the connection

    async def _alone(self, work: Callable[[], T]) -> T:
        """Work in the thread, with the connection to itself until the work is done, whether or not somebody still waits."""
        await self._turn.acquire()
        self._leave_line()
        working = asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, work)
        working.add_done_callback(self._over)
        return await asyncio.shield(working)

    def _leave_line(self) -> None:
        if self._line is not None:
            self._line.leave()
        self._line = None

    def _over(self, work: asyncio.Future[T]) -> None:
        # Asked for, so that a failure that nobody waits for any more is not taken for one that was forgotten.
        work.exception()
        self._turn.release()

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


def _stored(
    connection: Connection, head: TreeHead, fresh: Mapping[str, Entry]
) -> tuple[TreeHead, Stored | None] | None:
    return insert(connection, head, list(fresh.values())) if fresh else (head, None)


def _locked(stored: T | None) -> T:
    if stored is None:
        raise psycopg.DataError("the head of the tree moved under its lock")
    return stored
