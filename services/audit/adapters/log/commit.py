"""One commit of the log: a single statement for a group of batches, which calls a function of the log's owner.

The function moves the tree head from the size that this process knows, and inserts only if that succeeded. So replicas
may append concurrently: the second one stores nothing, reads the new head and tries again. Head and rows change
together or not at all; the service's role has no other access to them.

The statement is prepared once per connection and its parameters are packed in binary format, because a cursor would
cost more than the statement itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from msgspec import Struct
from psycopg import pq
from psycopg.errors import error_from_result

from services.audit.adapters.log.pg_binary import (
    pack_bigint,
    pack_bigint_array,
    pack_bytea_array,
    pack_repetitive_text_array,
    pack_smallint_array,
    pack_text_array,
    pack_timestamptz_array,
    unpack_timestamptz,
)
from services.audit.domain.merkle.merkle import CompactRange, leaf_hash
from services.audit.domain.model import Commit, Entry, TreeHead

APPLICATION_NAME = "toolmesh-audit-writer"
Connection = psycopg.Connection[Any]

# Most commits complete no stored subtree and omit these arrays.
_PARAMETERS = ("known_size", "size", "hashes", "leaf_hash", *Entry._fields)
_COMPLETED = ("levels", "places", "nodes")
# The parameters of the function after those that every release passes by position.
_NAMED = {"resource": "resources", "levels": "levels", "places": "places", "nodes": "nodes"}


def _call(parameters: Sequence[str]) -> bytes:
    values = [
        f"{_NAMED[name]} => ${number}" if name in _NAMED else f"${number}"
        for number, name in enumerate(parameters, start=1)
    ]
    return f"select append_records({', '.join(values)})".encode()


_STATEMENTS = {b"append": _call(_PARAMETERS), b"append_and_complete": _call(_PARAMETERS + _COMPLETED)}
_READ_HEAD = "select log_id, shard, first_sequence, size, hashes, open_time from tree_head"


def connect(url: str) -> Connection:
    """Open the writer's connection. Commits are durable when they return, whatever the defaults of role and server.
    Statement, network and idle timeouts end a hanging connection and release the head."""
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
        # Statements that psycopg prepared by itself would make it deallocate ours after a rollback.
        prepare_threshold=None,
    )
    try:
        for name, statement in _STATEMENTS.items():
            _raise_on_error(connection.pgconn.prepare(name, statement))
    except BaseException:
        connection.close()
        raise
    return connection


def read_head(connection: Connection, *, lock: bool = False) -> TreeHead:
    """Return the head; with `lock`, locked until the end of the transaction."""
    row = connection.execute(_READ_HEAD + (" for update" if lock else "")).fetchone()
    if row is None:
        raise psycopg.DataError("the log has no head")
    log_id, shard, first, size, hashes, opened = row
    return TreeHead(log_id, CompactRange(size - first, tuple(bytes(node) for node in hashes)), shard, first, opened)


class CommitDraft(Struct, frozen=True):
    """A prepared commit: the statement and its effect."""

    head: TreeHead
    new_head: TreeHead
    entries: Sequence[Entry]
    leaves: Sequence[bytes]
    payload_bytes: int
    statement: bytes
    parameters: Sequence[bytes]

    def parse_result(self, result: pq.abc.PGresult) -> tuple[TreeHead, Commit] | None:
        """Return the new head and the commit; None if the head had moved and nothing was stored."""
        log_time = _raise_on_error(result).get_value(0, 0)
        if log_time is None:
            return None
        head, at = self.head, unpack_timestamptz(log_time)
        commit = Commit(head.log_id, head.shard, head.size, at, self.entries, self.leaves, self.payload_bytes)
        return self.new_head, commit


def prepare_commit(head: TreeHead, entries: Sequence[Entry]) -> CommitDraft:
    """Return the commit that stores the entries after the head."""
    leaves = [leaf_hash(entry.canonical) for entry in entries]
    tree, completed = head.tree.grow(leaves)
    ids, forms, times, subjects, tools, traces, invocations, *words = zip(*entries, strict=True)
    parameters: list[bytes] = [
        pack_bigint(head.size),
        pack_bigint(head.first_sequence + tree.size),
        pack_bytea_array(tree.hashes),
        pack_bytea_array(leaves),
        pack_text_array(ids),
        pack_bytea_array(forms),
        pack_timestamptz_array(times),
        pack_repetitive_text_array(subjects),
        pack_repetitive_text_array(tools),
        pack_text_array(traces),
        pack_text_array(invocations),
        *map(pack_repetitive_text_array, words),
    ]
    new_head, payload_bytes = head.with_tree(tree), sum(map(len, forms))
    if not completed:
        return CommitDraft(head, new_head, entries, leaves, payload_bytes, b"append", parameters)
    parameters.append(pack_smallint_array([node.level for node, _ in completed]))
    parameters.append(pack_bigint_array([node.offset for node, _ in completed]))
    parameters.append(pack_bytea_array([node_hash for _, node_hash in completed]))
    return CommitDraft(head, new_head, entries, leaves, payload_bytes, b"append_and_complete", parameters)


def insert(connection: Connection, head: TreeHead, entries: Sequence[Entry]) -> tuple[TreeHead, Commit] | None:
    """Store the entries after the head, blocking; return the new head and the commit. None if the head had moved and
    nothing was stored."""
    draft = prepare_commit(head, entries)
    formats = [pq.Format.BINARY] * len(draft.parameters)
    result = connection.pgconn.exec_prepared(draft.statement, draft.parameters, formats, pq.Format.BINARY)
    return draft.parse_result(result)


def _raise_on_error(result: pq.abc.PGresult) -> pq.abc.PGresult:
    if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        raise error_from_result(result)
    return result
