"""An original log, built once per session, and copies of it to tamper with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from toolmesh_sdk.audit import VerifierKey

from libs.common.ids import new_id
from tests.evidence.live_log import LiveLog, records, run_service

OPEN = 2
ERASED = 5


@dataclass(frozen=True)
class OriginalLog:
    """The original: three shards of 300, 641 and 100 records, the last one open."""

    database: str
    server: str
    environment: dict[str, str]
    key: VerifierKey
    pki: Any

    def environment_of(self, database: str) -> dict[str, str]:
        """Return the environment of a service on another database."""
        place = f"{self.server.rsplit('@', 1)[1]}/{database}"
        return {
            **self.environment,
            "TOOLMESH_DATABASE_URL": f"postgresql://audit:test@{place}",
        }


@dataclass(frozen=True)
class LogCopy:
    """A copy of the original's database."""

    original: OriginalLog
    database: str

    def sql(self, *statements: str, **values: Any) -> list[Any]:
        """Run statements as superuser with all triggers disabled; return the rows of the last."""
        with psycopg.connect(f"{self.original.server}/{self.database}", autocommit=True) as connection:
            connection.execute("set search_path = audit")
            for table in (
                "records",
                "records_0",
                "records_1",
                "records_2",
                "records_3",
                "tree_head",
                "shards",
                "subtrees",
                "checkpoints",
            ):
                if connection.execute("select to_regclass(%s)", (table,)).fetchone() != (None,):
                    connection.execute(f"alter table {table} disable trigger all")
            found: list[Any] = []
            for statement in statements:
                cursor = connection.execute(statement, values)
                found = cursor.fetchall() if cursor.description else []
            return found

    def serve(self, **changes: str) -> AbstractContextManager[LiveLog]:
        """Run the service on the copy."""
        return run_service({**self.original.environment_of(self.database), **changes}, self.original.pki)


def key_file(folder: Path) -> Path:
    """Write a new checkpoint key."""
    path = folder / f"checkpoint-{new_id()}.pem"
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(Ed25519PrivateKey.generate().private_bytes(pem, form, serialization.NoEncryption()))
    return path


@pytest.fixture(scope="session")
def original(
    postgres_server: str, migrated: Callable[[str], str], pki: Any, tmp_path_factory: pytest.TempPathFactory
) -> OriginalLog:
    """A log of three shards, with checkpoints and one erased payload."""
    identity = pki.of("audit")
    environment = {
        "TOOLMESH_LISTEN": "127.0.0.1:0",
        "TOOLMESH_OPS_LISTEN": "127.0.0.1:0",
        "TOOLMESH_TLS_CERT": str(identity.cert),
        "TOOLMESH_TLS_KEY": str(identity.key),
        "TOOLMESH_TLS_CA": str(pki.ca),
        "TOOLMESH_DRAIN_SECONDS": "2",
        "TOOLMESH_DRAIN_DELAY_SECONDS": "0",
        # No caller sends a token, so authz is never called.
        "TOOLMESH_AUTHZ_ADDRESS": "127.0.0.1:1",
        "TOOLMESH_CHECKPOINT_KEY": str(key_file(tmp_path_factory.mktemp("keys"))),
        "TOOLMESH_CHECKPOINT_SECONDS": "86400",
    }
    name = _copy(postgres_server, migrated("audit"))
    made = OriginalLog(name, postgres_server, environment, VerifierKey("", b""), pki)
    with run_service(made.environment_of(name), pki) as log:
        _fill(log)
        key = log.remote().verifier_key(log.remote().shards()[OPEN])
    return OriginalLog(name, postgres_server, environment, VerifierKey.parse(key), pki)


def _fill(log: LiveLog) -> None:
    for part in range(3):
        log.append(records(100, part * 100))
        log.checkpoint()
    log.close_shard(0)
    log.append(records(160, 300))
    log.checkpoint()
    log.append(records(480, 460))
    log.checkpoint()
    log.close_shard(1)
    log.erase(ERASED)
    log.append(records(60, 940))
    log.checkpoint()
    log.append(records(38, 1000))
    log.checkpoint()


@pytest.fixture
def copy(original: OriginalLog) -> Iterator[Callable[[], LogCopy]]:
    """Return a function that copies the original."""
    made: list[str] = []

    def make() -> LogCopy:
        made.append(_copy(original.server, original.database))
        return LogCopy(original, made[-1])

    yield make
    with psycopg.connect(original.server + "/postgres", autocommit=True) as connection:
        for name in made:
            connection.execute(f"drop database {name} with (force)")


@pytest.fixture(scope="package")
def honest(original: OriginalLog) -> Iterator[LiveLog]:
    """A running copy that no test changes."""
    name = _copy(original.server, original.database)
    with run_service(original.environment_of(name), original.pki) as log:
        yield log


@contextmanager
def _admin(server: str) -> Iterator[Any]:
    with psycopg.connect(server + "/postgres", autocommit=True) as connection:
        yield connection


def _copy(server: str, template: str) -> str:
    name = "e" + new_id().replace("-", "")
    with _admin(server) as connection:
        connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (template,))
        connection.execute(f"create database {name} template {template}")
    return name
