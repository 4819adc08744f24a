"""How this machine reaches the mesh's PostgreSQL: by the administrator's URL, perhaps through a forwarded port."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg

from localmesh.cluster_backup.errors import BackupError
from localmesh.deploy.admin_url import AdminUrlError, open_admin_url
from localmesh.deploy.layout import Namespaces
from localmesh.deploy.secret_store import SecretStore
from localmesh.wheels import postgres_programs

# A file's descriptor, or PIPE.
Stream = int | None


@dataclass(frozen=True)
class PostgresAddress:
    """A server and its administrator."""

    url: str = field(repr=False)

    @contextmanager
    def connect(self, database: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
        """Connect to a database. What the driver raises in the block becomes a BackupError."""
        try:
            with psycopg.connect(
                self._url(database), autocommit=True, connect_timeout=10, application_name="toolmesh-backup"
            ) as connection:
                yield connection
        except psycopg.Error as error:
            # The first line names host, port and role, or says what the server refused. Others may quote the statement.
            reason = str(error).partition("\n")[0]
            raise BackupError(f"PostgreSQL: {reason}") from None

    def start(
        self, program: str, database: str, *arguments: str, stdin: Stream = None, stdout: Stream, stderr: Stream = None
    ) -> subprocess.Popen[bytes]:
        """Start a client program of PostgreSQL. Its password is in its environment, which other users cannot read."""
        parts = urlsplit(self._url(database))
        place = urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", "@")))
        words = [str(postgres_programs() / program), "--no-password", f"--dbname={place}", *arguments]
        environment = _environment(parts.password)
        return subprocess.Popen(words, env=environment, stdin=stdin, stdout=stdout, stderr=stderr)

    def _url(self, database: str) -> str:
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{database}"))


@contextmanager
def open_postgres(store: SecretStore, namespaces: Namespaces, server: str = "") -> Iterator[PostgresAddress]:
    """Give the address of the administrator's secret; `server` is host:port if this machine needs another one."""
    try:
        with open_admin_url(store, namespaces, server) as url:
            yield PostgresAddress(url)
    except AdminUrlError as error:
        raise BackupError(str(error)) from None


def _environment(password: str | None) -> Mapping[str, str]:
    return {**os.environ, "PGPASSWORD": unquote(password or ""), "PGCONNECT_TIMEOUT": "10"}
