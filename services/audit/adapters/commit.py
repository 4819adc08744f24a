"""One commit of the log: a statement for a whole group of batches.

It moves the tree head from the size that the process knows to the next one and inserts only if it could, so replicas may
append at the same time: whoever comes second stores nothing, learns the new head and goes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg

from services.audit.adapters.arrays import accept_packed_arrays, byte_strings, moments, texts
from services.audit.domain.merkle import CompactRange, leaf_hash
from services.audit.domain.model import Entry, TreeHead

APPLICATION_NAME = "toolmesh-audit-writer"
Connection = psycopg.Connection[Any]

# The head is locked before the first row is made, because every row is joined to it.
_HEAD = """
with head as (
    update tree_head set size = %(size)b, hashes = %(hashes)b::bytea[] where size = %(known_size)b returning shard
)"""
_SUBTREES = """, completed as (
    insert into subtrees (shard, level, place, hash)
    select head.shard, s.level, s.place, s.hash
    from head, unnest(%(levels)b::int2[], %(places)b::int8[], %(nodes)b::bytea[]) as s (level, place, hash)
)"""
_RECORDS = """
insert into records (
    shard, sequence, record_id, canonical, leaf_hash, event_time,
    subject, tool_version, trace_id, invocation_id, authz_outcome, status, ticket
)
select
    head.shard, %(known_size)b + r.ordinal - 1, r.record_id, r.canonical, r.leaf_hash, r.event_time,
    nullif(r.subject, ''), nullif(r.tool_version, ''), nullif(r.trace_id, ''), nullif(r.invocation_id, ''),
    nullif(r.authorization, ''), nullif(r.status, ''), nullif(r.ticket, '')
from head, unnest(
    %(record_id)b::text[], %(canonical)b::bytea[], %(event_time)b::timestamptz[], %(subject)b::text[],
    %(tool_version)b::text[], %(trace_id)b::text[], %(invocation_id)b::text[], %(authorization)b::text[],
    %(status)b::text[], %(ticket)b::text[], %(leaf_hash)b::bytea[]
) with ordinality as r (
    record_id, canonical, event_time, subject, tool_version, trace_id, invocation_id, "authorization", status, ticket,
    leaf_hash, ordinal
)
"""
# Most commits complete no subtree that is stored; those are spared the second insert.
_APPEND = _HEAD + _RECORDS
_APPEND_AND_COMPLETE = _HEAD + _SUBTREES + _RECORDS
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
    )
    accept_packed_arrays(connection)
    return connection


def read_head(connection: Connection, *, lock: bool = False) -> TreeHead:
    """Return the head; with `lock`, keep it for the rest of the transaction."""
    row = connection.execute(_READ_HEAD + (" for update" if lock else "")).fetchone()
    if row is None:
        raise psycopg.DataError("the log has no head")
    log_id, shard, first, size, hashes, opened = row
    return TreeHead(log_id, CompactRange(size - first, tuple(bytes(node) for node in hashes)), shard, first, opened)


def insert(connection: Connection, head: TreeHead, entries: Sequence[Entry]) -> TreeHead | None:
    """Store the entries behind the head and return the grown one; None if the log is no longer as the head says."""
    leaves = [leaf_hash(entry.canonical) for entry in entries]
    tree, completed = head.tree.grown(leaves)
    columns: dict[str, Any] = dict(zip(Entry._fields, zip(*entries, strict=True), strict=True))
    parameters = {
        "known_size": head.size,
        "size": head.first_sequence + tree.size,
        "hashes": byte_strings(tree.hashes),
        "leaf_hash": byte_strings(leaves),
        "canonical": byte_strings(columns.pop("canonical")),
        "event_time": moments(columns.pop("event_time")),
        **{name: texts(column) for name, column in columns.items()},
    }
    if completed:
        parameters["levels"] = [node.level for node, _ in completed]
        parameters["places"] = [node.place for node, _ in completed]
        parameters["nodes"] = byte_strings([node_hash for _, node_hash in completed])
    cursor = connection.execute(_APPEND_AND_COMPLETE if completed else _APPEND, parameters, prepare=True)
    return replace(head, tree=tree) if cursor.rowcount == len(entries) else None
