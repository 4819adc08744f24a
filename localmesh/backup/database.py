"""Dumps and restores the database of a local mesh, running or not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from localmesh.composition import Mesh, postgres_plan
from localmesh.parts.cluster import PostgresPlan, choose_user, require_success
from localmesh.parts.postgres import client_launch, postgres_part
from localmesh.parts.schemas import DATABASE
from localmesh.ports import USUAL_PORTS, PortClaims
from localmesh.process.child import run_to_end
from localmesh.process.supervisor import Supervisor
from localmesh.settings import Settings
from localmesh.state.pki import Pki
from localmesh.state.secrets import read_secrets
from localmesh.state.state import State

# A dump takes as long as the database is large.
MOST_SECONDS = 24 * 3600.0
# Executors hold positions in the registry's change log; a restored log counts anew, so they must begin with a snapshot.
NEW_EPOCH = "update registry.change_counter set epoch = gen_random_uuid()::text"


async def dump_database(state: State, target: Path) -> None:
    """Writes a consistent dump, from the running mesh or from a server started for it. Raises PartError."""
    ports = state.runtime().get("ports")
    if ports:
        await _dump(_plan(state, ports), target)
        return
    async with _server(state) as plan:
        await _dump(plan, target)


async def restore_database(state: State, source: Path) -> None:
    """Creates the cluster of a state folder that has only its secrets, and fills it from a dump. Raises PartError."""
    async with _server(state) as plan:
        arguments = ("--clean", "--if-exists", "--exit-on-error", "--single-transaction", str(source))
        restore = client_launch(plan, "pg_restore", *arguments, database=DATABASE)
        require_success("pg_restore", await run_to_end(restore, seconds=MOST_SECONDS))
        epoch = client_launch(plan, "psql", "-Xqt", "-v", "ON_ERROR_STOP=1", "-c", NEW_EPOCH, database=DATABASE)
        require_success("the new epoch", await run_to_end(epoch))


async def _dump(plan: PostgresPlan, target: Path) -> None:
    dump = client_launch(plan, "pg_dump", "--format=custom", f"--file={target}", database=DATABASE)
    require_success("pg_dump", await run_to_end(dump, seconds=MOST_SECONDS))


@asynccontextmanager
async def _server(state: State) -> AsyncIterator[PostgresPlan]:
    claims = PortClaims()
    claims.claim("postgres", USUAL_PORTS["postgres"])
    plan = _plan(state, claims.numbers)
    supervisor = Supervisor([postgres_part(plan)], state.log_file, lambda event: None)
    try:
        await supervisor.start()
        yield plan
    finally:
        await supervisor.stop()
        claims.release()


def _plan(state: State, ports: Mapping[str, int]) -> PostgresPlan:
    return postgres_plan(Mesh(state, ports, read_secrets(state), Pki(state.pki), Settings(), choose_user()))
