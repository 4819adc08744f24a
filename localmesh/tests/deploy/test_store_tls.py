"""PostgreSQL and Valkey behind TLS: the URLs of every role and user reach them, and no other server in their place."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from sqlalchemy import text

from libs.common.sql.engine import engine_for
from localmesh.deploy.admin_url import open_admin_url
from localmesh.deploy.init_db import InitDatabaseError, init_database
from localmesh.deploy.init_secrets import ADMIN, init_database_urls, init_redis_urls
from localmesh.deploy.layout import (
    DATABASE_MOUNT,
    OWNER_MOUNT,
    OWNERS,
    REDIS_MOUNT,
    STORES_CA,
    Namespaces,
    database_secret,
    owner_secret,
    redis_secret,
)
from localmesh.state.secrets import VALKEY_USERS
from localmesh.tests.deploy.memory_secrets import MemorySecrets
from tests.harness.servers import tls_front
from tests.harness.servers.certificates import make_certificate
from tests.harness.stores import free_port, run_postgres, run_valkey, wait_until

NAMESPACES = Namespaces()


@contextmanager
def behind_tls(server: int, certificate: Path, key: Path, *options: str) -> Iterator[int]:
    """Run TLS before a server of this machine; yield its port."""
    port = free_port()
    words = [str(port), "127.0.0.1", str(server), str(certificate), str(key), *options]
    with subprocess.Popen([sys.executable, tls_front.__file__, *words]) as process:
        try:
            wait_until(lambda: answers(port), "the start of TLS")
            yield port
        finally:
            process.kill()


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@dataclass(frozen=True)
class Stores:
    """Secrets of a mesh whose stores have TLS."""

    secrets: MemorySecrets
    folder: Path
    stranger: bytes
    ports: tuple[int, int]

    def url(self, service: str, name: str, mount: str, authority: bytes | None = None, host: str = "localhost") -> str:
        """Return a URL as a pod reads it, with its authority where it is mounted."""
        content = self.secrets.content[NAMESPACES.of(service), name]
        file = self.folder / STORES_CA
        file.write_bytes(content[STORES_CA] if authority is None else authority)
        url = content["url"].decode()
        assert f"{mount}/{STORES_CA}" in url
        return url.replace(f"{mount}/{STORES_CA}", str(file)).replace("@localhost:", f"@{host}:")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    folder = tmp_path_factory.mktemp("store-tls")
    certificate, key = make_certificate(folder, "stores", "DNS:localhost")
    stranger, _ = make_certificate(folder, "stranger", "DNS:localhost")
    (folder / "postgres").mkdir()
    with run_postgres(folder / "postgres") as plain, run_valkey(folder) as valkey:
        database, cache = urlsplit(plain), urlsplit(valkey)
        assert database.port
        assert cache.port
        with (
            behind_tls(database.port, certificate, key, "--postgres") as postgres,
            behind_tls(cache.port, certificate, key) as redis_port,
        ):
            secrets, authority = MemorySecrets(), certificate.read_bytes()
            admin = f"{plain.replace('127.0.0.1', 'localhost').replace(f':{database.port}', f':{postgres}')}/postgres"
            secrets.create("toolmesh", ADMIN, {"url": admin.encode()})
            init_database_urls(secrets, NAMESPACES, f"localhost:{postgres}", authority)
            init_redis_urls(secrets, NAMESPACES, f"localhost:{redis_port}", authority)
            init_database(secrets, NAMESPACES)
            with redis.Redis.from_url(valkey) as client:
                for user in VALKEY_USERS:
                    url = secrets.content[NAMESPACES.of(user), redis_secret(user)]["url"].decode()
                    client.execute_command("ACL", "SETUSER", user, "on", f">{urlsplit(url).password}", "+ping")
            yield Stores(secrets, folder, stranger.read_bytes(), (postgres, redis_port))


@pytest.mark.parametrize("service", OWNERS)
async def test_services_and_their_migrations_reach_the_database_by_tls(stores: Stores, service: str) -> None:
    for name, mount in ((database_secret(service), DATABASE_MOUNT), (owner_secret(service), OWNER_MOUNT)):
        engine = engine_for(stores.url(service, name, mount), schema=service)
        async with engine.connect() as connection:
            raw = (await connection.get_raw_connection()).driver_connection
            assert isinstance(raw, psycopg.AsyncConnection)
            assert raw.pgconn.ssl_in_use
            assert (await connection.execute(text("select 1"))).scalar() == 1
        await engine.dispose()


@pytest.mark.parametrize("user", VALKEY_USERS)
def test_users_of_valkey_reach_it_by_tls(stores: Stores, user: str) -> None:
    with redis.Redis.from_url(stores.url(user, redis_secret(user), REDIS_MOUNT)) as client:
        assert client.ping()


@pytest.mark.parametrize("wrong", ["authority", "name"])
def test_a_server_in_their_place_gets_no_password(stores: Stores, wrong: str) -> None:
    authority = stores.stranger if wrong == "authority" else None
    host = "127.0.0.1" if wrong == "name" else "localhost"
    url = stores.url("registry", database_secret("registry"), DATABASE_MOUNT, authority, host)
    with pytest.raises(psycopg.OperationalError), psycopg.connect(url, connect_timeout=30):
        pass
    url = stores.url("registry", redis_secret("registry"), REDIS_MOUNT, authority, host)
    with redis.Redis.from_url(url) as client, pytest.raises(redis.exceptions.ConnectionError):
        client.ping()


def test_the_administrator_checks_the_server_through_a_tunnel_too(stores: Stores) -> None:
    through = f"127.0.0.1:{stores.ports[0]}"
    with (
        open_admin_url(stores.secrets, NAMESPACES, through) as url,
        psycopg.connect(url, connect_timeout=30) as connection,
    ):
        assert connection.pgconn.ssl_in_use
    strange = MemorySecrets()
    strange.content = {place: dict(content) for place, content in stores.secrets.content.items()}
    strange.content["toolmesh", ADMIN][STORES_CA] = stores.stranger
    with pytest.raises(InitDatabaseError):
        init_database(strange, NAMESPACES)
