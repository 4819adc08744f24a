"""One commit of the log: a statement for a whole group of batches.

It moves the tree head from the size that the process knows to the next one and inserts only if it could, so replicas may
append at the same time: whoever comes second stores nothing, learns the new head and goes again.

The statement is prepared with the connection, and its parameters are packed for the wire: the log makes one commit after
another all its life, and what a cursor does for any statement costs more than this one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

from libs.common.facts import fact
from services.audit.adapters.arrays import (
    byte_strings,
    common_texts,
    moment_of,
    moments,
    number,
    numbers,
    small_numbers,
    texts,
)
from services.audit.domain.merkle import CompactRange, leaf_hash
from services.audit.domain.model import Entry, Stored, TreeHead

APPLICATION_NAME = "toolmesh-audit-writer"
Connection = psycopg.Connection[Any]

# The head is locked before the first row is made, because every row is joined to it. The moment is that of the lock, too:
# whatever waited for it, moments never go back along the log. All replicas share the database's clock.
_HEAD = """
with head as (
    update tree_head set size = {size}::int8, hashes = {hashes}::bytea[] where size = {known_size}::int8
    returning shard, clock_timestamp() as log_time
)"""
_SUBTREES = """, completed as (
    insert into subtrees (shard, level, place, hash)
    select head.shard, s.level, s.place, s.hash
    from head, unnest({levels}::int2[], {places}::int8[], {nodes}::bytea[]) as s (level, place, hash)
)"""
_RECORDS = """, stored as (insert into records (
    shard, sequence, log_time, record_id, canonical, leaf_hash, event_time,
    subject, tool_version, trace_id, invocation_id, authz_outcome, status, ticket
)
select
    head.shard, {known_size}::int8 + r.ordinal - 1, head.log_time, r.record_id, r.canonical, r.leaf_hash, r.event_time,
    nullif(r.subject, ''), nullif(r.tool_version, ''), nullif(r.trace_id, ''), nullif(r.invocation_id, ''),
    nullif(r.authorization, ''), nullif(r.status, ''), nullif(r.ticket, '')
from head, unnest(
    {record_id}::text[], {canonical}::bytea[], {event_time}::timestamptz[], {subject}::text[],
    {tool_version}::text[], {trace_id}::text[], {invocation_id}::text[], {authorization}::text[],
    {status}::text[], {ticket}::text[], {leaf_hash}::bytea[]
) with ordinality as r (
    record_id, canonical, event_time, subject, tool_version, trace_id, invocation_id, "authorization", status, ticket,
    leaf_hash, ordinal
))
select log_time from head
"""
# Most commits complete no subtree that is stored; those are spared the second insert.
_STATEMENTS = {b"append": _HEAD + _RECORDS, b"append_and_complete": _HEAD + _SUBTREES + _RECORDS}
_PARAMETERS = ("known_size", "size", "hashes", "leaf_hash", *Entry._fields, "levels", "places", "nodes")
_NUMBERED = {name: f"${place}" for place, name in enumerate(_PARAMETERS, start=1)}
_READ_HEAD = "select log_id, shard, first_sequence, size, hashes, open_time from tree_head"


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
        # With a statement that it had prepared by itself, psycopg would give up ours as well after a rollback.
        prepare_threshold=None,
    )
    try:
        for name, statement in _STATEMENTS.items():
            _checked(connection.pgconn.prepare(name, statement.format(**_NUMBERED).encode()))
    except BaseException:
        connection.close()
        raise
    return connection


def read_head(connection: Connection, *, lock: bool = False) -> TreeHead:
    """Return the head; with `lock`, keep it for the rest of the transaction."""
    row = connection.execute(_READ_HEAD + (" for update" if lock else "")).fetchone()
    if row is None:
        raise psycopg.DataError("the log has no head")
    log_id, shard, first, size, hashes, opened = row
    return TreeHead(log_id, CompactRange(size - first, tuple(bytes(node) for node in hashes)), shard, first, opened)


@fact(frozen=True, slots=True)
class Draft:
    """A commit that was not made yet: the statement and what it would do."""

    head: TreeHead
    grown: TreeHead
    entries: Sequence[Entry]
    leaves: Sequence[bytes]
    weight: int
    statement: bytes
    parameters: Sequence[bytes]

    def made(self, result: pq.abc.PGresult) -> tuple[TreeHead, Stored] | None:
        """Return the grown head and what was stored; None if the log was no longer as the head says, and nothing was."""
        if not _checked(result).ntuples:
            return None
        head, moment = self.head, moment_of(result.get_value(0, 0) or b"")
        return self.grown, Stored(head.log_id, head.shard, head.size, moment, self.entries, self.leaves, self.weight)


def draft(head: TreeHead, entries: Sequence[Entry]) -> Draft:
    """Return the commit that stores the entries behind the head."""
    leaves = [leaf_hash(entry.canonical) for entry in entries]
    tree, completed = head.tree.grown(leaves)
    ids, forms, times, subjects, tools, traces, invocations, *words = zip(*entries, strict=True)
    parameters: list[bytes] = [
        number(head.size),
        number(head.first_sequence + tree.size),
        byte_strings(tree.hashes),
        byte_strings(leaves),
        texts(ids),
        byte_strings(forms),
        moments(times),
        common_texts(subjects),
        common_texts(tools),
        texts(traces),
        texts(invocations),
        *map(common_texts, words),
    ]
    grown, weight = head.grown(tree), sum(map(len, forms))
    if not completed:
        return Draft(head, grown, entries, leaves, weight, b"append", parameters)
    parameters.append(small_numbers([node.level for node, _ in completed]))
    parameters.append(numbers([node.place for node, _ in completed]))
    parameters.append(byte_strings([node_hash for _, node_hash in completed]))
    return Draft(head, grown, entries, leaves, weight, b"append_and_complete", parameters)


def insert(connection: Connection, head: TreeHead, entries: Sequence[Entry]) -> tuple[TreeHead, Stored] | None:
    """Store the entries behind the head, waiting for it; return the grown one and what was stored. None if the log is no
    longer as the head says, and nothing was stored."""
    drafted = draft(head, entries)
    formats = [pq.Format.BINARY] * len(drafted.parameters)
    result = connection.pgconn.exec_prepared(drafted.statement, drafted.parameters, formats, pq.Format.BINARY)
    return drafted.made(result)


def _checked(result: pq.abc.PGresult) -> pq.abc.PGresult:
    if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        raise error_from_result(result)
    return result
