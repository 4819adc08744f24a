"""Real stores for tests: the same binaries that a local mesh runs, on free ports, gone afterwards."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import redis

from localmesh.parts.cluster import PostgresPlan, choose_folder, choose_user, ensure_cluster, write_owned
from localmesh.ports import PortClaims
from localmesh.process.child import Launch, spawn
from localmesh.settings import inherited_environment
from localmesh.state.secrets import DATABASE_OWNER
from localmesh.wheels import postgres_programs, valkey_server

# Not the generator that hypothesis seeds: processes of tests would all try the same ports.
_RANDOM = random.SystemRandom()
_CLAIMS = PortClaims()
CONFIGURATION = """\
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
max_connections = 200
shared_buffers = 32MB
# The machine does not crash in a test, and a process that is killed loses nothing that the system has: no need to
# wait for disks.
fsync = off
full_page_writes = off
# A connection that was given up half-way blocks the drop of a database until the server gives it up too.
authentication_timeout = 5s
# A public password needs no strengthening, and thousands of connections are made.
scram_iterations = 1
"""


def free_port() -> int:
    """Return a port that is free, and that no other test or mesh of this machine takes while this process lives.

    It is below those that the kernel gives to clients, any of which might take it before its server does.
    """
    return _CLAIMS.claim("test", _RANDOM.randrange(20_000, 32_000))


def wait_until(condition: Callable[[], object], what: str, seconds: float = 120.0) -> None:
    """Poll until the condition holds; fail with `what` when it never does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {seconds} s")
        time.sleep(0.02)


@contextmanager
def run_postgres(folder: Path) -> Iterator[str]:
    """Run PostgreSQL; yield the superuser's URL without a database."""
    run_as = choose_user()
    plan = PostgresPlan(
        programs=postgres_programs(),
        folder=choose_folder(folder, run_as),
        port=free_port(),
        passwords={DATABASE_OWNER: "test"},
        run_as=run_as,
    )
    loop = asyncio.new_event_loop()
    loop.run_until_complete(ensure_cluster(plan))
    write_owned(plan, plan.cluster / "postgresql.conf", CONFIGURATION.format(port=plan.port))
    write_owned(plan, plan.cluster / "pg_hba.conf", "host all all 127.0.0.1/32 scram-sha-256\n")
    argv = (str(plan.programs / "postgres"), "-D", str(plan.cluster))
    launch = Launch(argv, Path("/"), inherited_environment(), run_as=run_as, death_signal=signal.SIGQUIT)
    url = f"postgresql://{DATABASE_OWNER}:test@127.0.0.1:{plan.port}"
    with _running(loop, launch, folder / "postgres.log", signal.SIGINT):
        wait_until(lambda: _answers(lambda: psycopg.connect(url + "/postgres").close()), "PostgreSQL's start")
        with psycopg.connect(url + "/postgres", autocommit=True) as connection:
            # Set again, for the number of iterations is kept with it.
            connection.execute(f"alter role {DATABASE_OWNER} password 'test'")
        yield url


@contextmanager
def run_valkey(folder: Path) -> Iterator[str]:
    """Run Valkey; yield its URL."""
    port = free_port()
    argv = (str(valkey_server()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder))
    launch = Launch(argv, Path("/"), inherited_environment())
    url = f"redis://127.0.0.1:{port}/0"
    with _running(asyncio.new_event_loop(), launch, folder / "valkey.log", signal.SIGTERM):
        client = redis.Redis.from_url(url)
        wait_until(lambda: _answers(client.ping), "Valkey's start")
        client.close()
        yield url


@contextmanager
def _running(loop: asyncio.AbstractEventLoop, launch: Launch, log: Path, stop: signal.Signals) -> Iterator[None]:
    async def start():  # type: ignore[no-untyped-def]
        with log.open("wb") as output:
            return spawn(launch, output=output.fileno())

    child = loop.run_until_complete(start())  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        loop.run_until_complete(child.stop(stop, 10))
        loop.close()


def _answers(probe: Callable[[], object]) -> bool:
    try:
        probe()
    except (psycopg.OperationalError, redis.RedisError):
        return False
    return True
