"""The log's database as a test sees it: asked, held and hurt from outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from services.audit.adapters.writer import APPLICATION_NAME
from services.audit.domain.merkle import CompactRange
from services.audit.tests.sample import expected_root


def sql(url: str, statement: str, *parameters: Any) -> list[Any]:
    """Run one statement as the service's own role."""
    with psycopg.connect(url, autocommit=True, options="-c search_path=audit") as connection:
        cursor = connection.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


def check_log(url: str, count: int) -> list[str]:
    """Assert that the log is dense and that its head is the tree over its bytes; return its record ids."""
    rows = sql(url, "select sequence, record_id, canonical from records order by sequence")
    [(size, hashes)] = sql(url, "select size, hashes from tree_head")
    assert [row[0] for row in rows] == list(range(count))
    assert size == count
    assert CompactRange(size, tuple(hashes)).root() == expected_root([bytes(row[2]) for row in rows])
    return [row[1] for row in rows]


@contextmanager
def head_locked(url: str) -> Iterator[None]:
    """Keep every writer of the log waiting."""
    with psycopg.connect(url, options="-c search_path=audit") as connection:
        connection.execute("select from tree_head for update")
        yield


WRITERS = f"from pg_stat_activity where application_name = '{APPLICATION_NAME}' and datname = current_database()"


def writer_waits(url: str) -> bool:
    """Say whether a commit is waiting for the head."""
    return bool(sql(url, f"select pid {WRITERS} and wait_event_type = 'Lock'"))


def kill_writers(url: str) -> None:
    """Cut the connection of every writer."""
    assert sql(url, f"select pg_terminate_backend(pid) {WRITERS}")
