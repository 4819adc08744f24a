"""Restores the database of a mesh beside the place where it will be, and puts it there in one step at the end.

A run that is interrupted or killed leaves a database under another name, which the next run replaces. Only one runs at
a time.
"""

from __future__ import annotations

import enum
import subprocess
import tempfile
from collections.abc import Iterable

import psycopg

from localmesh.backup.database import NEW_EPOCH
from localmesh.cluster_backup.backup_folder import Manifest
from localmesh.cluster_backup.database_dump import last_line, read_facts
from localmesh.cluster_backup.errors import BackupError, TargetError
from localmesh.cluster_backup.postgres_address import PostgresAddress
from localmesh.deploy.layout import OWNERS
from localmesh.parts.schemas import DATABASE, provisioning_sql

DRAFT = f"{DATABASE}_restoring"
# Held on the server while a restore runs; the server releases it when the run was killed.
_LOCK = 7_460_913_552_880_141
# The approval service ends them itself, on record: an approval that was used after the backup must not be used again.
_END_TICKETS = """
    update approval.tickets set
        expire_time = least(expire_time, clock_timestamp()),
        approval_expire_time = least(approval_expire_time, clock_timestamp()),
        next_time = clock_timestamp()
    where state in ('pending', 'approved')
"""
_USER_TABLES = """
    select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p') and n.nspname not like 'pg\\_%' and n.nspname <> 'information_schema'
"""


class TargetState(enum.Enum):
    """What is in the place of the database."""

    EMPTY = "empty"
    """No database, or one without tables."""
    RESTORED = "restored"
    """The database of this backup, and what came after the restore."""
    OCCUPIED = "occupied"


def inspect_target(postgres: PostgresAddress, manifest: Manifest) -> TargetState:
    """Return what a restore would replace."""
    with postgres.connect("postgres") as connection:
        row = connection.execute(
            "select shobj_description(oid, 'pg_database') from pg_database where datname = %s", (DATABASE,)
        ).fetchone()
    if row is None:
        return TargetState.EMPTY
    if row[0] == _mark(manifest):
        return TargetState.RESTORED
    with postgres.connect(DATABASE) as connection:
        tables = connection.execute(_USER_TABLES).fetchone()
    return TargetState.EMPTY if tables == (0,) else TargetState.OCCUPIED


def restore_database(
    postgres: PostgresAddress, manifest: Manifest, passwords: dict[str, str], dump: Iterable[bytes]
) -> None:
    """Restore a dump in the place of no database or an empty one. Raises BackupError; then the place is as before."""
    with postgres.connect("postgres") as server:
        _require_no_other_restore(server)
        # A program that a killed run had started may still be connected to its draft.
        server.execute(f"drop database if exists {DRAFT} with (force)".encode())
        server.execute(f"create database {DRAFT}".encode())
        with postgres.connect(DRAFT) as connection:
            connection.execute(provisioning_sql(passwords, OWNERS, DRAFT).encode())
        _load(postgres, dump)
        with postgres.connect(DRAFT) as connection:
            _require_complete(connection, manifest)
            connection.execute(NEW_EPOCH)
            connection.execute(_END_TICKETS)
        server.execute(f"comment on database {DRAFT} is '{_mark(manifest)}'".encode())
        _put_in_place(server)


def _require_no_other_restore(server: psycopg.Connection[tuple[object, ...]]) -> None:
    row = server.execute("select pg_try_advisory_lock(%s)", (_LOCK,)).fetchone()
    if row != (True,):
        raise TargetError("another restore runs on this server: run this again when it has ended")


def _load(postgres: PostgresAddress, dump: Iterable[bytes]) -> None:
    options = ("--clean", "--if-exists", "--exit-on-error", "--single-transaction")
    with tempfile.TemporaryFile() as messages:
        output = messages.fileno()
        start = postgres.start("pg_restore", DRAFT, *options, stdin=subprocess.PIPE, stdout=output, stderr=output)
        with start as process:
            assert process.stdin is not None
            try:
                for chunk in dump:
                    process.stdin.write(chunk)
            except BrokenPipeError:
                pass  # its exit code and its message tell why
            except BaseException:
                # The end of its input would let it commit what it has got.
                process.kill()
                raise
        if process.returncode != 0:
            raise BackupError(f"pg_restore failed: {last_line(messages)}")


def _require_complete(connection: psycopg.Connection[tuple[object, ...]], manifest: Manifest) -> None:
    facts = read_facts(connection)
    if (facts.revisions, facts.log) != (manifest.revisions, manifest.log):
        raise BackupError("the restored database is not the one of the manifest")


def _put_in_place(server: psycopg.Connection[tuple[object, ...]]) -> None:
    try:
        # Without tables: `inspect_target` has looked.
        server.execute(f"drop database if exists {DATABASE}".encode())
        server.execute(f"alter database {DRAFT} rename to {DATABASE}".encode())
    except psycopg.errors.ObjectInUse:
        raise TargetError(f"database {DATABASE} is in use: stop the services, then run this again") from None


def _mark(manifest: Manifest) -> str:
    return f"toolmesh backup {manifest.backup_id}"
