"""PostgreSQL on loopback, one role and one schema for each service."""

from __future__ import annotations

import signal
from pathlib import Path

from localmesh.parts.cluster import PostgresPlan, clear_stale_lock, ensure_cluster, require_success, write_owned
from localmesh.parts.schemas import DATABASE, create_database_script, provisioning_sql
from localmesh.process.child import Launch, run_to_end
from localmesh.process.part import Part
from localmesh.settings import LOOPBACK, inherited_environment
from localmesh.state.secrets import DATABASE_OWNER

# Small on purpose: a laptop runs this beside everything else. Durability is not traded for it.
CONFIGURATION = """\
listen_addresses = '{address}'
port = {port}
unix_socket_directories = ''
max_connections = 100
authentication_timeout = 10s
shared_buffers = 32MB
work_mem = 2MB
maintenance_work_mem = 32MB
wal_buffers = 1MB
max_wal_size = 256MB
max_worker_processes = 4
max_parallel_workers = 2
jit = off
fsync = on
password_encryption = 'scram-sha-256'
log_timezone = 'UTC'
timezone = 'UTC'
log_line_prefix = '%m [%p] %u '
"""

# A service reaches the mesh's database only, the owner any, and both by password, on one machine over loopback only.
ACCESS = """\
host {database} {roles} {clients} scram-sha-256
host all {owner} {clients} scram-sha-256
"""


def postgres_part(plan: PostgresPlan) -> Part:
    """Returns the part. Its first `prepare` creates the cluster, its first readiness the roles and schemas."""

    async def prepare() -> None:
        await ensure_cluster(plan)
        await clear_stale_lock(plan)
        configure(plan)

    async def probe() -> bool:
        return (await run_to_end(client_launch(plan, "pg_isready", "-q"), seconds=3)).code == 0

    async def provision() -> None:
        script = create_database_script() + provisioning_sql(plan.passwords)
        require_success("provisioning", await run_to_end(client_launch(plan, "psql", "-Xqtf", "-"), stdin=script))

    return Part(
        name="postgres",
        launch=_server(plan),
        probe=probe,
        address=f"{LOOPBACK}:{plan.port}",
        prepare=prepare,
        provision=provision,
        stop_signal=signal.SIGINT,  # "fast": rolls back what is open, then writes a checkpoint
        stop_seconds=15,
    )


def database_url(role: str, password: str, port: int) -> str:
    """Returns the database URL of one role."""
    return f"postgresql://{role}:{password}@{LOOPBACK}:{port}/{DATABASE}"


def _server(plan: PostgresPlan) -> Launch:
    return Launch(
        argv=(str(plan.programs / "postgres"), "-D", str(plan.cluster)),
        cwd=Path("/"),
        environment=inherited_environment(),
        run_as=plan.run_as,
        death_signal=signal.SIGINT,
    )


def client_launch(plan: PostgresPlan, program: str, *arguments: str, database: str = "postgres") -> Launch:
    """Returns a client program that connects as the owner of the databases."""
    environment = {**inherited_environment(), "PGPASSWORD": plan.passwords[DATABASE_OWNER], "PGCONNECT_TIMEOUT": "3"}
    place = ("-h", LOOPBACK, "-p", str(plan.port), "-U", DATABASE_OWNER, "-d", database)
    return Launch((str(plan.programs / program), *place, *arguments), Path("/"), environment)


def configure(plan: PostgresPlan) -> None:
    """Writes the server's settings and who may connect."""
    roles = ",".join(plan.roles)
    access = ACCESS.format(database=DATABASE, roles=roles, owner=DATABASE_OWNER, clients=plan.clients)
    write_owned(plan, plan.cluster / "postgresql.conf", CONFIGURATION.format(address=plan.address, port=plan.port))
    write_owned(plan, plan.cluster / "pg_hba.conf", access)
