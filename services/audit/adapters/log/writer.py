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
from services.audit.adapters.log.async_pq import PreparedConnection
from services.audit.adapters.log.commit import CommitDraft, Connection, connect, insert, prepare_commit, read_head
from services.audit.adapters.log.entry_locations import (
    build_append_result,
    exclude,
    find_in_closed_shards,
    find_sequences,
    index_by_id,
    possibly_in_closed_shards,
)
from services.audit.domain.errors import log_unavailable
from services.audit.domain.evidence.errors import condition_error
from services.audit.domain.evidence.model import ShardLimits, ShardLink
from services.audit.domain.evidence.ports import SelfRecorder
from services.audit.domain.merkle.merkle import CompactRange
from services.audit.domain.merkle.note import Origin
from services.audit.domain.model import AppendResult, Commit, Entry, TreeHead

_RECORD_ID_CONSTRAINT = "_record_id_key"
_REFUSED_SQLSTATE = "TM001"

T = TypeVar("T")


class PostgresWriter:
    """Appends to the log and keeps it. What it knows of the head is replaced only by what the database has committed."""

    def __init__(
        self, url: str, log: Log, *, recorder: SelfRecorder, clock: Clock, limits: ShardLimits, origin: Origin
    ) -> None:
        self._url, self._log, self._recorder, self._clock = url, log, recorder, clock
        self._limits, self._origin = limits, origin
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit-writer")
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._prepared: PreparedConnection | None = None
        self._head: TreeHead | None = None
        self._draft: CommitDraft | None = None
        """The commit under way, or the one made ready to follow it."""

    async def start(self) -> None:
        """Connect and learn the head."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._ensure_connected)

    async def stop(self) -> None:
        """Let go of the connection."""
        await self._run_exclusive(self._disconnect)
        self._thread.shutdown(wait=False)

    # ---- appending

    async def append(self, entries: Sequence[Entry]) -> AppendResult:
        """Keep the promise of the port."""
        async with self._lock:
            done = await self._append_fast(entries)
        if done is not None:
            return done
        return await self._run_exclusive(lambda: self._append_slow(entries))

    async def _append_fast(self, entries: Sequence[Entry]) -> AppendResult | None:
        """Commit with one statement, if that is all it takes; None if it takes more, and nothing was stored."""
        connection, head = self._connection, self._head
        if connection is None or head is None or self._is_full(head) or possibly_in_closed_shards(head, entries):
            return None
        if len({entry.record_id for entry in entries}) < len(entries):
            return None
        draft = self._draft_for(head, entries)
        try:
            if self._prepared is None:
                self._prepared = PreparedConnection(connection.pgconn)
            result = await self._prepared.execute_prepared(draft.statement, draft.parameters)
            parse_result = draft.parse_result(result)
        except UniqueViolation:
            return None
        except psycopg.Error as error:
            self._release_prepared()
            raise self._to_mesh_error(error) from error
        except BaseException:
            # What becomes of the statement is not known, nor is what the connection would say next.
            self._release_prepared()
            self._disconnect()
            raise
        if self._draft is draft:
            self._draft = None
        # Without a result, another replica came first; the head is read anew.
        self._head, stored = parse_result or (None, None)
        return build_append_result(entries, {}, stored, self._head.size) if self._head else None

    def prepare_next(self, entries: Sequence[Entry]) -> None:
        """Keep the promise of the port: draft the next commit as if the one under way succeeded, which it nearly always does."""
        if self._draft is not None:
            self._draft = prepare_commit(self._draft.new_head, entries)

    def _draft_for(self, head: TreeHead, entries: Sequence[Entry]) -> CommitDraft:
        """Return the commit of the entries, and remember it as the one under way. What was foreseen holds only behind the head
        that it was foreseen for."""
        draft = self._draft
        if draft is None or draft.entries is not entries or draft.head != head:
            draft = self._draft = prepare_commit(head, entries)
        return draft

    def _append_slow(self, entries: Sequence[Entry]) -> AppendResult:
        fresh: Mapping[str, Entry] = index_by_id(entries)
        sequences: dict[str, int] = {}
        stored: Commit | None = None
        while fresh:
            try:
                known, stored = self._commit(fresh)
                sequences.update(known)
                break
            except UniqueViolation as error:
                # Somebody sent these before. That is rare, so nobody looks for it until it shows.
                twice = str(error.diag.constraint_name).endswith(_RECORD_ID_CONSTRAINT)
                found = find_sequences(self._ensure_connected()[0], fresh) if twice else {}
                if not found:
                    raise
                sequences.update(found)
                fresh = exclude(fresh, found)
        return build_append_result(entries, sequences, stored, self._ensure_connected()[1].size)

    def _commit(self, fresh: Mapping[str, Entry]) -> tuple[dict[str, int], Commit | None]:
        """Store what is new; return the places of what older shards hold, and what was stored."""
        connection, head = self._ensure_connected()
        if not self._is_full(head):
            known = find_in_closed_shards(connection, head, fresh)
            stored = _insert_new(connection, head, exclude(fresh, known))
            if stored is not None:
                self._head = stored[0]
                return known, stored[1]
        # A busy replica would win every race against one that first has to read the head; the lock gives it its turn.
        with connection.transaction():
            head = read_head(connection, lock=True)
            if self._is_full(head):
                head = self._open_next_shard(connection, head)
            known = find_in_closed_shards(connection, head, fresh)
            grown, new = _require_inserted(_insert_new(connection, head, exclude(fresh, known)))
        self._head = grown
        return known, new

    # ---- shards

    def _is_full(self, head: TreeHead) -> bool:
        if not head.tree.size:
            return False
        age = (self._clock.now() - head.open_time).total_seconds()
        return head.tree.size >= self._limits.records or age >= self._limits.seconds

    def _open_next_shard(self, connection: Connection, head: TreeHead) -> TreeHead:
        """Close the shard of a locked head; return the head of the next, whose first record names the one before."""
        origin, root = self._origin.of_shard(head.log_id, head.shard), head.tree.root()
        link = ShardLink(head.shard, head.first_sequence, head.tree.size, root, origin)
        row = connection.execute("select open_shard(%s, %s, %s)", (head.shard, head.size, root)).fetchone()
        if row is None:
            raise psycopg.DataError("the shard was not opened")
        begun = TreeHead(head.log_id, CompactRange(), head.shard + 1, head.size, row[0])
        return _require_inserted(insert(connection, begun, [self._recorder.record_shard_opened(link)]))[0]

    # ---- keeping

    async def close_shard(self, number: int) -> int:
        """Keep the promise of the port."""
        return await self._run_exclusive(lambda: self._close_shard(number))

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
        connection, _ = self._ensure_connected()
        with connection.transaction():
            head = read_head(connection, lock=True)
            if head.shard != number:
                raise condition_error("shard_moved")
            if not head.tree.size:
                raise condition_error("shard_empty")
            grown = self._open_next_shard(connection, head)
        self._head = grown
        return grown.first_sequence

    async def _change(self, entry: Entry, statement: str, before: str = "") -> int:
        return await self._run_exclusive(lambda: self._apply_change(entry, statement, before))

    def _apply_change(self, entry: Entry, statement: str, before: str) -> int:
        """Append the entry and make the change that it records, which finds it by its place."""
        connection, _ = self._ensure_connected()
        with connection.transaction():
            if before:
                connection.execute(before)
            head = read_head(connection, lock=True)
            grown, _ = _require_inserted(insert(connection, head, [entry]))
            connection.execute(statement, (head.size,))
        self._head = grown
        return head.size

    # ---- the connection

    async def _run_exclusive(self, work: Callable[[], T]) -> T:
        """Work in the thread, with the connection to itself until the work is done, whether or not somebody still waits."""
        await self._lock.acquire()
        self._release_prepared()
        working = asyncio.get_running_loop().run_in_executor(self._thread, self._map_errors, work)
        working.add_done_callback(self._finish_exclusive)
        return await asyncio.shield(working)

    def _release_prepared(self) -> None:
        if self._prepared is not None:
            self._prepared.stop_watching()
        self._prepared = None

    def _finish_exclusive(self, work: asyncio.Future[T]) -> None:
        # Asked for, so that a failure that nobody waits for any more is not taken for one that was forgotten.
        work.exception()
        self._lock.release()

    def _map_errors(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except psycopg.Error as error:
            raise self._to_mesh_error(error) from error

    def _to_mesh_error(self, error: psycopg.Error) -> MeshError:
        if error.sqlstate == _REFUSED_SQLSTATE:
            return condition_error(error.diag.message_detail or "")
        # The statement may have been committed or not; only the database knows, so it is asked before the next one.
        self._disconnect()
        self._log.error("commit failed", cause=error)
        return log_unavailable()

    def _ensure_connected(self) -> tuple[Connection, TreeHead]:
        if self._connection is None:
            self._connection = connect(self._url)
        if self._head is None:
            self._head = read_head(self._connection)
        return self._connection, self._head

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._head = None


def _insert_new(
    connection: Connection, head: TreeHead, fresh: Mapping[str, Entry]
) -> tuple[TreeHead, Commit | None] | None:
    return insert(connection, head, list(fresh.values())) if fresh else (head, None)


def _require_inserted(stored: T | None) -> T:
    if stored is None:
        raise psycopg.DataError("the head of the tree moved under its lock")
    return stored
