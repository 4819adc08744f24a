"""Appends to the log in PostgreSQL over a dedicated connection.

A normal commit is one statement (commit.py) on the event loop (async_pq.py). The rare cases run in a thread: another
replica committed first, a shard is full, a record is repeated or so old that a closed shard may have it.
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
    """Appends to the log and applies retention. The cached head is replaced only after a successful commit."""

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
        """The running commit, or the prepared one to follow it."""

    async def start(self) -> None:
        """Connect and read the head."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._ensure_connected)

    async def stop(self) -> None:
        """Close the connection."""
        await self._run_exclusive(self._disconnect)
        self._thread.shutdown(wait=False)

    # ---- appending

    async def append(self, entries: Sequence[Entry]) -> AppendResult:
        """Implement `LogWriter.append`."""
        async with self._lock:
            result = await self._append_fast(entries)
        if result is not None:
            return result
        return await self._run_exclusive(lambda: self._append_slow(entries))

    async def _append_fast(self, entries: Sequence[Entry]) -> AppendResult | None:
        """Commit with one statement if that is possible; None if it is not, and nothing was stored."""
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
            committed = draft.parse_result(result)
        except UniqueViolation:
            return None
        except psycopg.Error as error:
            self._release_prepared()
            raise self._to_mesh_error(error) from error
        except BaseException:
            # The outcome of the statement is unknown, and so is the state of the connection.
            self._release_prepared()
            self._disconnect()
            raise
        if self._draft is draft:
            self._draft = None
        # No result: another replica committed first, so the head is read again.
        self._head, commit = committed or (None, None)
        return build_append_result(entries, {}, commit, self._head.size) if self._head else None

    def prepare_next(self, entries: Sequence[Entry]) -> None:
        """Implement `LogWriter.prepare_next`: prepare the next commit as if the running one succeeded."""
        if self._draft is not None:
            self._draft = prepare_commit(self._draft.new_head, entries)

    def _draft_for(self, head: TreeHead, entries: Sequence[Entry]) -> CommitDraft:
        """Return the commit of the entries and remember it as the running one. A prepared commit is valid only for the
        head that it was prepared for."""
        draft = self._draft
        if draft is None or draft.entries is not entries or draft.head != head:
            draft = self._draft = prepare_commit(head, entries)
        return draft

    def _append_slow(self, entries: Sequence[Entry]) -> AppendResult:
        fresh: Mapping[str, Entry] = index_by_id(entries)
        sequences: dict[str, int] = {}
        commit: Commit | None = None
        while fresh:
            try:
                known, commit = self._commit(fresh)
                sequences.update(known)
                break
            except UniqueViolation as error:
                # Repeated records are rare, so they are looked up only after a conflict.
                repeated = str(error.diag.constraint_name).endswith(_RECORD_ID_CONSTRAINT)
                known = find_sequences(self._ensure_connected()[0], fresh) if repeated else {}
                if not known:
                    raise
                sequences.update(known)
                fresh = exclude(fresh, known)
        return build_append_result(entries, sequences, commit, self._ensure_connected()[1].size)

    def _commit(self, fresh: Mapping[str, Entry]) -> tuple[dict[str, int], Commit | None]:
        """Store the new entries; return the sequences of those in closed shards, and the commit."""
        connection, head = self._ensure_connected()
        if not self._is_full(head):
            known = find_in_closed_shards(connection, head, fresh)
            inserted = _insert_new(connection, head, exclude(fresh, known))
            if inserted is not None:
                self._head = inserted[0]
                return known, inserted[1]
        # Without the lock, a busy replica would win every race against one that reads the head first.
        with connection.transaction():
            head = read_head(connection, lock=True)
            if self._is_full(head):
                head = self._open_next_shard(connection, head)
            known = find_in_closed_shards(connection, head, fresh)
            new_head, commit = _require_inserted(_insert_new(connection, head, exclude(fresh, known)))
        self._head = new_head
        return known, commit

    # ---- shards

    def _is_full(self, head: TreeHead) -> bool:
        if not head.tree.size:
            return False
        age = (self._clock.now() - head.open_time).total_seconds()
        return head.tree.size >= self._limits.records or age >= self._limits.seconds

    def _open_next_shard(self, connection: Connection, head: TreeHead) -> TreeHead:
        """Close the shard of a locked head; return the head of the next, whose first record links to the previous
        one."""
        origin, root = self._origin.of_shard(head.log_id, head.shard), head.tree.root()
        link = ShardLink(head.shard, head.first_sequence, head.tree.size, root, origin)
        row = connection.execute("select open_shard(%s, %s, %s)", (head.shard, head.size, root)).fetchone()
        if row is None:
            raise psycopg.DataError("the shard was not opened")
        empty_head = TreeHead(head.log_id, CompactRange(), head.shard + 1, head.size, row[0])
        return _require_inserted(insert(connection, empty_head, [self._recorder.record_shard_opened(link)]))[0]

    # ---- retention

    async def close_shard(self, number: int) -> int:
        """Implement `RetentionWriter.close_shard`."""
        return await self._run_exclusive(lambda: self._close_shard(number))

    async def place_hold(self, entry: Entry) -> int:
        """Implement `RetentionWriter.place_hold`."""
        return await self._change(entry, "select place_hold(%s)")

    async def release_hold(self, entry: Entry) -> int:
        """Implement `RetentionWriter.release_hold`."""
        return await self._change(entry, "select release_hold(%s)")

    async def erase_payload(self, entry: Entry) -> int:
        """Implement `RetentionWriter.erase_payload`."""
        return await self._change(entry, "select erase_payload(%s)")

    async def archive_shard(self, entry: Entry) -> int:
        """Implement `RetentionWriter.archive_shard`."""
        return await self._change(entry, "select archive_shard(%s)")

    async def drop_shard(self, entry: Entry, *, years: int) -> int:
        """Implement `RetentionWriter.drop_shard`."""
        return await self._change(entry, f"select drop_shard(%s, {years:d})", before="select lock_for_drop()")

    def _close_shard(self, number: int) -> int:
        connection, _ = self._ensure_connected()
        with connection.transaction():
            head = read_head(connection, lock=True)
            if head.shard != number:
                raise condition_error("shard_moved")
            if not head.tree.size:
                raise condition_error("shard_empty")
            new_head = self._open_next_shard(connection, head)
        self._head = new_head
        return new_head.first_sequence

    async def _change(self, entry: Entry, statement: str, before: str = "") -> int:
        return await self._run_exclusive(lambda: self._apply_change(entry, statement, before))

    def _apply_change(self, entry: Entry, statement: str, before: str) -> int:
        """Append the entry and apply the change that it records, which finds the entry by its sequence."""
        connection, _ = self._ensure_connected()
        with connection.transaction():
            if before:
                connection.execute(before)
            head = read_head(connection, lock=True)
            new_head, _ = _require_inserted(insert(connection, head, [entry]))
            connection.execute(statement, (head.size,))
        self._head = new_head
        return head.size

    # ---- the connection

    async def _run_exclusive(self, work: Callable[[], T]) -> T:
        """Run work in the thread with exclusive use of the connection until it is done, even if the caller is
        canceled."""
        await self._lock.acquire()
        self._release_prepared()
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._map_errors, work)
        future.add_done_callback(self._finish_exclusive)
        return await asyncio.shield(future)

    def _release_prepared(self) -> None:
        if self._prepared is not None:
            self._prepared.stop_watching()
        self._prepared = None

    def _finish_exclusive(self, work: asyncio.Future[T]) -> None:
        # Retrieved, so that asyncio does not report a failure without a waiter.
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
        # It is unknown whether the statement was committed, so the head is read again before the next one.
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


def _require_inserted(inserted: T | None) -> T:
    if inserted is None:
        raise psycopg.DataError("the tree head moved while it was locked")
    return inserted
