"""PostgreSQL, as the whole mesh of the session runs it, and on its own where it has to be hurt."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from localmesh import wheels
from localmesh.parts.cluster import PostgresPlan, choose_folder, choose_user, clear_stale_lock
from localmesh.parts.postgres import database_url, postgres_part
from localmesh.ports import USUAL_PORTS, PortClaims
from localmesh.process.child import RunAs
from localmesh.process.supervisor import Supervisor
from localmesh.state.keys import ensure_secrets
from localmesh.state.secrets import DATABASE_OWNER, DATABASE_ROLES, SCHEMA_OWNERS, read_secrets
from localmesh.state.state import State
from localmesh.tests.deadlines import eventually_async
from localmesh.tests.harness import Commands, others_reach
from localmesh.view.progress import Event


@pytest.fixture(scope="module")
def urls(mesh: Commands) -> dict[str, str]:
    """The address of every role in the session's mesh."""
    passwords = read_secrets(State(mesh.state)).database
    port = mesh.runtime()["ports"]["postgres"]
    return {role: database_url(role, password, port) for role, password in passwords.items()}


@pytest.mark.parametrize("service", DATABASE_ROLES)
def test_a_service_has_a_schema_that_it_or_its_owner_finds_first(urls: dict[str, str], service: str) -> None:
    with psycopg.connect(urls[SCHEMA_OWNERS.get(service, service)]) as connection:
        connection.execute("CREATE TABLE probe (id int)")
        schemas = connection.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'probe'").fetchall()
        assert (service,) in schemas
        connection.rollback()


@pytest.mark.parametrize("service", SCHEMA_OWNERS)
def test_a_service_whose_schema_has_another_owner_makes_nothing_in_it(urls: dict[str, str], service: str) -> None:
    with psycopg.connect(urls[service]) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(f"CREATE TABLE {service}.probe (id int)")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM registry.secret_table",
        "CREATE TABLE registry.intruder (id int)",
        "CREATE TABLE public.intruder (id int)",
        "CREATE SCHEMA intruder",
        "CREATE TEMPORARY TABLE intruder (id int)",
        "CREATE ROLE intruder",
        "SELECT pg_read_file('/etc/passwd')",
    ],
)
def test_a_service_has_no_rights_elsewhere(urls: dict[str, str], statement: str) -> None:
    with psycopg.connect(urls["registry"], autocommit=True) as registry:
        registry.execute("CREATE TABLE IF NOT EXISTS secret_table (id int)")
    with psycopg.connect(urls["audit"]) as audit, pytest.raises(psycopg.errors.InsufficientPrivilege):
        audit.execute(statement)


def test_a_service_reaches_no_other_database_and_no_wrong_password_works(urls: dict[str, str]) -> None:
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(urls["audit"].replace("/toolmesh", "/postgres"))
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(urls["audit"], password="guess")


def test_it_is_durable_and_on_loopback_only(urls: dict[str, str]) -> None:
    with psycopg.connect(urls[DATABASE_OWNER]) as connection:
        shown: dict[str, str] = dict(connection.execute("SELECT name, setting FROM pg_settings").fetchall())
    assert (shown["fsync"], shown["synchronous_commit"], shown["full_page_writes"]) == ("on", "on", "on")
    assert (shown["listen_addresses"], shown["unix_socket_directories"]) == ("127.0.0.1", "")


async def test_a_crash_loses_nothing_that_was_committed(server: Supervisor, plan: PostgresPlan) -> None:
    url = database_url("registry", plan.passwords["registry"], plan.port)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (id int)")
        connection.execute("INSERT INTO kept VALUES (1)")
    pid = server.members["postgres"].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await eventually_async(lambda: _restarted(server))
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT id FROM kept").fetchall() == [(1,)]


async def test_a_stale_lock_with_the_pid_of_another_process_is_removed(plan: PostgresPlan) -> None:
    lock = plan.cluster / "postmaster.pid"
    lock.parent.mkdir(parents=True)
    lock.write_text(f"{os.getpid()}\n")
    await clear_stale_lock(plan)
    assert not lock.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
async def test_without_user_namespaces_it_runs_as_nobody_elsewhere(nobodys_plan: PostgresPlan) -> None:
    if not others_reach(nobodys_plan.programs):
        pytest.skip("this tree lies where another user may not read it")
    supervisor = _supervisor(nobodys_plan)
    await supervisor.start()
    status = Path(f"/proc/{supervisor.members['postgres'].pid}/status").read_text()  # noqa: ASYNC240
    assert "Uid:\t65534" in status
    with psycopg.connect(database_url("audit", nobodys_plan.passwords["audit"], nobodys_plan.port)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    await supervisor.stop()


def test_the_folder_is_in_the_state_unless_the_user_nobody_must_reach_it(tmp_path: Path) -> None:
    assert choose_folder(tmp_path, RunAs.OURSELVES) == choose_folder(tmp_path, RunAs.NAMESPACED_NOBODY)
    assert choose_folder(tmp_path, RunAs.NOBODY) != choose_folder(tmp_path / "other", RunAs.NOBODY)
    assert tmp_path not in choose_folder(tmp_path, RunAs.NOBODY).parents


@pytest.fixture
def plan(state: State) -> Iterator[PostgresPlan]:
    yield from _plans(state, choose_user())


@pytest.fixture
def nobodys_plan(state: State) -> Iterator[PostgresPlan]:
    for plan in _plans(state, RunAs.NOBODY):
        yield plan
        shutil.rmtree(plan.folder, ignore_errors=True)


@pytest.fixture
async def server(plan: PostgresPlan) -> AsyncIterator[Supervisor]:
    supervisor = _supervisor(plan)
    await supervisor.start()
    yield supervisor
    await supervisor.stop()


def _plans(state: State, run_as: RunAs) -> Iterator[PostgresPlan]:
    ensure_secrets(state)
    claims = PortClaims()
    port = claims.claim("postgres", USUAL_PORTS["postgres"])
    passwords = read_secrets(state).database
    yield PostgresPlan(wheels.postgres_programs(), choose_folder(state.path, run_as), port, passwords, run_as)
    claims.release()


def _supervisor(plan: PostgresPlan) -> Supervisor:
    events: list[Event] = []
    return Supervisor([postgres_part(plan)], lambda name: plan.folder.parent / f"{name}.log", events.append)


async def _restarted(server: Supervisor) -> bool:
    member = server.members["postgres"]
    return member.ready and member.restarts > 0
