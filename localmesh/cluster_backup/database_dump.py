"""Dumps the database of a mesh, all schemas of one moment, while services go on."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import psycopg

from localmesh.cluster_backup.backup_folder import LogHead
from localmesh.cluster_backup.encryption import PIECE_BYTES
from localmesh.cluster_backup.errors import BackupError
from localmesh.cluster_backup.postgres_address import PostgresAddress
from localmesh.parts.schemas import DATABASE
from localmesh.state.secrets import DATABASE_ROLES

_LOG_HEAD = "select log_id, size from audit.tree_head"
_CHECKPOINT = "select shard, size from audit.checkpoints order by shard desc, size desc limit 1"


@dataclass(frozen=True)
class DatabaseFacts:
    """The revision of each schema and the end of the log."""

    revisions: dict[str, str]
    log: LogHead


@contextmanager
def open_dump(postgres: PostgresAddress) -> Iterator[tuple[DatabaseFacts, Iterator[bytes]]]:
    """Open a consistent dump: facts and content are of the same moment. Raises BackupError."""
    with postgres.connect(DATABASE) as connection:
        # Held open while pg_dump reads, which takes over its snapshot.
        connection.execute("begin isolation level repeatable read read only")
        row = connection.execute("select pg_export_snapshot()").fetchone()
        assert row is not None
        yield read_facts(connection), _dump(postgres, f"--snapshot={row[0]}")


def read_facts(connection: psycopg.Connection[Any]) -> DatabaseFacts:
    """Read what a manifest states of a database. Raises BackupError for one without a migrated mesh."""
    try:
        revisions = {service: _revision(connection, service) for service in DATABASE_ROLES}
        head = connection.execute(_LOG_HEAD).fetchone()
        checkpoint = connection.execute(_CHECKPOINT).fetchone()
    except psycopg.errors.UndefinedTable:
        raise BackupError(f"database {DATABASE} holds no migrated mesh") from None
    if head is None:
        raise BackupError(f"database {DATABASE} holds no log")
    shard, size = checkpoint or (0, 0)
    return DatabaseFacts(revisions, LogHead(str(head[0]), int(head[1]), int(shard), int(size)))


def _revision(connection: psycopg.Connection[Any], service: str) -> str:
    row = connection.execute(f"select version_num from {service}.schema_version".encode()).fetchone()  # noqa: S608
    return str(row[0]) if row else ""


def _dump(postgres: PostgresAddress, snapshot: str) -> Iterator[bytes]:
    # Its messages go to a file: a pipe that is not read would stop it.
    with tempfile.TemporaryFile() as messages:
        options = ("--format=custom", snapshot)
        start = postgres.start("pg_dump", DATABASE, *options, stdout=subprocess.PIPE, stderr=messages.fileno())
        with start as process:
            assert process.stdout is not None
            while chunk := process.stdout.read(PIECE_BYTES):
                yield chunk
        if process.returncode != 0:
            raise BackupError(f"pg_dump failed: {last_line(messages)}")


def last_line(messages: IO[bytes]) -> str:
    """Return the last message that a program wrote."""
    messages.seek(0)
    lines = messages.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it wrote nothing"
