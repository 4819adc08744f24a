"""The end of the log in PostgreSQL: one statement for a whole group of batches, in a thread and on a connection of its own.

A blocking connection costs a third of an asynchronous one for a small statement; its thread keeps the event loop free.
The statement moves the tree head from the size that this process knows to the next one and inserts only if it could, so
replicas may append at the same time: whoever comes second stores nothing, learns the new head and goes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import psycopg
from psycopg.errors import UniqueViolation

from libs.common.telemetry.log import Log
from services.audit.adapters.arrays import accept_packed_arrays, byte_strings, moments, texts
from services.audit.domain.errors import log_unavailable
from services.audit.domain.merkle import CompactRange, leaf_hash
from services.audit.domain.model import Appended, Entry

APPLICATION_NAME = "toolmesh-audit-writer"
_DUPLICATE = "records_record_id_key"
# The head is locked before the first row is made, because every row is joined to it.
_APPEND = """
with head as (
    update tree_head set size = %(size)b, hashes = %(hashes)b::bytea[] where size = %(known_size)b returning log_id
)
insert into records (
    sequence, record_id, canonical, leaf_hash, event_time,
    subject, tool_version, trace_id, invocation_id, authz_outcome, status, ticket
)
select
    %(known_size)b + r.place - 1, r.record_id, r.canonical, r.leaf_hash, r.event_time,
    nullif(r.subject, ''), nullif(r.tool_version, ''), nullif(r.trace_id, ''), nullif(r.invocation_id, ''),
    nullif(r.authorization, ''), nullif(r.status, ''), nullif(r.ticket, '')
from head, unnest(
    %(record_id)b::text[], %(canonical)b::bytea[], %(event_time)b::timestamptz[], %(subject)b::text[],
    %(tool_version)b::text[], %(trace_id)b::text[], %(invocation_id)b::text[], %(authorization)b::text[],
    %(status)b::text[], %(ticket)b::text[], %(leaf_hash)b::bytea[]
) with ordinality as r (
    record_id, canonical, event_time, subject, tool_version, trace_id, invocation_id, "authorization", status, ticket,
    leaf_hash, place
)
"""
_HEAD = "select size, hashes from tree_head"
_LOCKED_HEAD = _HEAD + " for update"
_PLACES = "select record_id, sequence from records where record_id = any(%b::text[])"

Connection = psycopg.Connection[Any]
T = TypeVar("T")


def connect(url: str) -> Connection:
    """Open the writer's connection. What it commits is on disk when it returns, whatever the role's or server's default.
    A statement or a network that hangs ends in an error, and a process that freezes with the head in its hand loses it."""
    connection = psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=3,
        options="-c search_path=audit -c synchronous_commit=on -c statement_timeout=5000"
        " -c idle_in_transaction_session_timeout=2000",
        application_name=APPLICATION_NAME,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=8000,
    )
    accept_packed_arrays(connection)
    return connection


class PostgresWriter:
    """Appends to the log. What it knows of the tree is replaced only by what the database has committed."""

    def __init__(self, url: str, log: Log) -> None:
        self._url, self._log = url, log
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit-writer")
        self._connection: Connection | None = None
        self._tree: CompactRange | None = None

    async def start(self) -> None:
        """Connect and learn the head."""
        await self._in_thread(self._ready)

    async def stop(self) -> None:
        """Let go of the connection."""
        await self._in_thread(self._forget)
        self._thread.shutdown(wait=False)

    async def append(self, entries: Sequence[Entry]) -> Appended:
        """Keep the promise of the port."""
        return await self._in_thread(lambda: self._append(entries))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _append(self, entries: Sequence[Entry]) -> Appended:
        try:
            return self._append_new(entries)
        except psycopg.Error as error:
            # The statement may have been committed or not; only the database knows, so it is asked before the next one.
            self._forget()
            self._log.error("append failed", cause=error, records=len(entries))
            raise log_unavailable() from error

    def _append_new(self, entries: Sequence[Entry]) -> Appended:
        fresh: dict[str, Entry] = {}
        for entry in entries:
            fresh.setdefault(entry.record_id, entry)
        places: dict[str, int] = {}
        while fresh:
            try:
                places.update(self._commit(fresh))
                break
            except UniqueViolation as error:
                # Somebody sent these before. That is rare, so nobody looks for it until it shows.
                found = self._places_of(fresh) if error.diag.constraint_name == _DUPLICATE else {}
                if not found:
                    raise
                places.update(found)
                fresh = {record_id: entry for record_id, entry in fresh.items() if record_id not in found}
        return Appended([places[entry.record_id] for entry in entries], len(fresh), self._ready()[1].size)

    def _commit(self, fresh: Mapping[str, Entry]) -> dict[str, int]:
        connection, tree = self._ready()
        grown = _insert(connection, tree, list(fresh.values()))
        if grown is None:
            # A busy replica would win every race against one that first has to read the head; the lock gives it its turn.
            with connection.transaction():
                tree = _read_head(connection, _LOCKED_HEAD)
                grown = _insert(connection, tree, list(fresh.values()))
            if grown is None:
                raise psycopg.DataError("the head of the tree moved under its lock")
        self._tree = grown
        return {record_id: sequence for sequence, record_id in enumerate(fresh, start=tree.size)}

    def _places_of(self, fresh: Mapping[str, Entry]) -> dict[str, int]:
        connection, _ = self._ready()
        return dict(connection.execute(_PLACES, (list(fresh),)).fetchall())

    def _ready(self) -> tuple[Connection, CompactRange]:
        if self._connection is None:
            self._connection = connect(self._url)
        if self._tree is None:
            self._tree = _read_head(self._connection, _HEAD)
        return self._connection, self._tree

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._tree = None


def _read_head(connection: Connection, statement: str) -> CompactRange:
    row = connection.execute(statement).fetchone()
    if row is None:
        raise psycopg.DataError("the log has no head")
    return CompactRange(row[0], tuple(bytes(node) for node in row[1]))


def _insert(connection: Connection, tree: CompactRange, entries: Sequence[Entry]) -> CompactRange | None:
    """Store the entries behind the tree and return the grown one; None if the log is no longer as the tree says."""
    leaves = [leaf_hash(entry.canonical) for entry in entries]
    grown = tree.extended(leaves)
    columns: dict[str, Any] = dict(zip(Entry._fields, zip(*entries, strict=True), strict=True))
    parameters = {
        "known_size": tree.size,
        "size": grown.size,
        "hashes": byte_strings(grown.hashes),
        "leaf_hash": byte_strings(leaves),
        "canonical": byte_strings(columns.pop("canonical")),
        "event_time": moments(columns.pop("event_time")),
        **{name: texts(column) for name, column in columns.items()},
    }
    cursor = connection.execute(_APPEND, parameters, prepare=True)
    return grown if cursor.rowcount == len(entries) else None
