"""One commit of the log: a statement for a whole group of batches, which calls a function of the log's owner.

It moves the tree head from the size that the process knows to the next one and inserts only if it could, so replicas may
append at the same time: whoever comes second stores nothing, learns the new head and goes again. Head and rows move
together there or not at all, whoever calls it; the service's role has no other way to either.

The statement is prepared with the connection, and its parameters are packed for the wire: the log makes one commit after
another all its life, and what a cursor does for any statement costs more than this one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from msgspec import Struct
from psycopg import pq
from psycopg.errors import error_from_result

from services.audit.adapters.log.pg_binary import (
    byte_strings,
    common_texts,
    moment_of,
    moments,
    number,
    numbers,
    small_numbers,
    texts,
)
from services.audit.domain.merkle.merkle import CompactRange, leaf_hash
from services.audit.domain.model import Entry, Stored, TreeHead

APPLICATION_NAME = "toolmesh-audit-writer"
Connection = psycopg.Connection[Any]

# Most commits complete no subtree that is stored; those are spared the arrays of them.
_PARAMETERS = ("known_size", "size", "hashes", "leaf_hash", *Entry._fields)
_COMPLETED = ("levels", "places", "nodes")


def _call(parameters: Sequence[str]) -> bytes:
    return f"select append_records({', '.join(f'${place}' for place, _ in enumerate(parameters, start=1))})".encode()


_STATEMENTS = {b"append": _call(_PARAMETERS), b"append_and_complete": _call(_PARAMETERS + _COMPLETED)}
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
            _checked(connection.pgconn.prepare(name, statement))
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


class Draft(Struct, frozen=True):
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
        moment = _checked(result).get_value(0, 0)
        if moment is None:
            return None
        head, at = self.head, moment_of(moment)
        return self.grown, Stored(head.log_id, head.shard, head.size, at, self.entries, self.leaves, self.weight)


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
