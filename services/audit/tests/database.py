"""Direct access to the log's database: queries, locks and killed connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import psycopg

from services.audit.adapters.log.commit import APPLICATION_NAME
from services.audit.domain.merkle.merkle import CompactRange
from services.audit.tests.sample import expected_root


def sql(url: str, statement: str, *parameters: Any) -> list[Any]:
    """Run one statement as the service's own role."""
    with psycopg.connect(url, autocommit=True, options="-c search_path=audit") as connection:
        cursor = connection.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


def check_log(url: str, count: int) -> list[str]:
    """Assert that the log has no gaps and that its head matches the bytes; return the record ids."""
    rows = sql(url, "select sequence, record_id, canonical from records order by sequence")
    [(size, hashes)] = sql(url, "select size, hashes from tree_head")
    assert [row[0] for row in rows] == list(range(count))
    assert size == count
    assert CompactRange(size, tuple(hashes)).root() == expected_root([bytes(row[2]) for row in rows])
    return [row[1] for row in rows]


def check_shards(url: str) -> list[range]:
    """Assert that the log has no gaps, that each shard's root matches its bytes and that each shard links to the
    previous one; return the sequence range of each shard."""
    rows = sql(url, "select sequence, shard, canonical from records order by sequence")
    shards = sql(url, "select number, first_sequence, size, root_hash from shards order by number")
    [(log_id, size, hashes)] = sql(url, "select log_id, size, hashes from tree_head")
    assert [row[0] for row in rows] == list(range(size))
    found = []
    for number, first, length, root in shards:
        payloads = [bytes(row[2]) for row in rows if row[1] == number]
        tree = CompactRange(size - first, tuple(hashes)).root() if length is None else bytes(root)
        assert tree == expected_root(payloads)
        assert [row[0] for row in rows if row[1] == number] == list(range(first, first + len(payloads)))
        found.append(range(first, first + len(payloads)))
        if number:
            before = shards[number - 1]
            assert orjson.loads(payloads[0])["previous_shard"] == {
                "number": number - 1,
                "first_sequence": before[1],
                "tree_size": before[2],
                "root_hash": bytes(before[3]).hex(),
                "origin": f"toolmesh.local/audit/{log_id}/{number - 1}",
            }
    return found


@contextmanager
def head_locked(url: str) -> Iterator[None]:
    """Block every writer of the log."""
    with psycopg.connect(url, options="-c search_path=audit") as connection:
        connection.execute("select from tree_head for update")
        yield


WRITERS = f"from pg_stat_activity where application_name = '{APPLICATION_NAME}' and datname = current_database()"


def writer_waits(url: str) -> bool:
    """Return whether a commit waits for the head."""
    return bool(sql(url, f"select pid {WRITERS} and wait_event_type = 'Lock'"))


def kill_writers(url: str) -> None:
    """Terminate the connection of every writer."""
    assert sql(url, f"select pg_terminate_backend(pid) {WRITERS}")
