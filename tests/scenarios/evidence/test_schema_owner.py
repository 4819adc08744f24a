"""Migrations run in processes of their own: no service holds an owner's password, and none starts on a wrong schema."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from localmesh.parts.postgres import database_url
from localmesh.state.secrets import DATABASE_OWNER, DATABASE_ROLES, SCHEMA_OWNERS, read_secrets
from localmesh.state.state import State
from tests.harness.mesh import Mesh

OWNERS = (DATABASE_OWNER, *SCHEMA_OWNERS.values())


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with."""
    pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def memory_of(pid: int) -> Iterator[bytes]:
    """Yield every writable region of a process's memory. Raises PermissionError where the kernel forbids it."""
    regions = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) rw", Path(f"/proc/{pid}/maps").read_text(), re.MULTILINE)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
        for begin, end in regions:
            try:
                memory.seek(int(begin, 16))
                yield memory.read(int(end, 16) - int(begin, 16))
            except (OSError, ValueError, OverflowError):
                continue  # unmapped meanwhile, or no memory at all


def test_no_service_holds_the_password_of_a_schemas_owner(mesh: Mesh) -> None:
    passwords = read_secrets(State(mesh.state)).database
    pids = {part["name"]: part["pid"] for part in mesh.status()["services"] if part["name"] in DATABASE_ROLES}
    given = {name: environment_of(pid) for name, pid in pids.items()}
    assert not [name for name in given if "TOOLMESH_MIGRATION_DATABASE_URL" in given[name]]
    held = {name: {role for role in passwords if passwords[role] in str(given[name])} for name in given}
    assert held == {name: {name} for name in DATABASE_ROLES}
    try:
        regions = list(memory_of(pids["audit"]))
    except PermissionError:
        pytest.skip("this kernel lets no process read the memory of another that it did not start")
    found = {role for role in ("audit", *OWNERS) if any(passwords[role].encode() in region for region in regions)}
    assert found == {"audit"}  # its own, which shows that the search sees


@contextmanager
def changed(mesh: Mesh, change: str, restore: str) -> Iterator[None]:
    """Change the version table of every schema for a while: its row, its comment or its name. A running service does
    not look at it."""
    url = database_url(DATABASE_OWNER, read_secrets(State(mesh.state)).database[DATABASE_OWNER], mesh_port(mesh))
    with psycopg.connect(url, autocommit=True) as superuser:
        schemas = [f"{service}.schema_version" for service in DATABASE_ROLES]
        read = "select version_num, obj_description('{table}'::regclass, 'pg_class') from {table}"
        before = {table: superuser.execute(read.format(table=table)).fetchone() for table in schemas}
        try:
            for table in schemas:
                superuser.execute(change.format(table=table))
            yield
        finally:
            for table, row in before.items():
                assert row is not None
                schema, version, oldest = table.split(".")[0], *row
                superuser.execute(restore.format(table=table, schema=schema, version=version, oldest=oldest))


def mesh_port(mesh: Mesh) -> int:
    """Return the port of the mesh's PostgreSQL."""
    return int(mesh.part("postgres")["address"].rpartition(":")[2])


WRONG_SCHEMAS = {
    # No build from before 9999 works on it.
    "newer": (
        "update {table} set version_num = '9999'; comment on table {table} is '9999'",
        "update {table} set version_num = '{version}'; comment on table {table} is '{oldest}'",
    ),
    "never migrated": (
        "alter table {table} rename to hidden_version",
        "alter table {schema}.hidden_version rename to schema_version",
    ),
}


@pytest.mark.parametrize("kind", WRONG_SCHEMAS)
def test_every_service_refuses_a_wrong_schema_in_one_line(mesh: Mesh, repository: Path, kind: str) -> None:
    any_port = {"TOOLMESH_LISTEN": "127.0.0.1:0", "TOOLMESH_OPS_LISTEN": "127.0.0.1:0"}
    pids = {part["name"]: part["pid"] for part in mesh.status()["services"]}
    with changed(mesh, *WRONG_SCHEMAS[kind]):
        processes = {
            name: subprocess.Popen(
                [sys.executable, "-m", f"services.{name}"],
                env=environment_of(pids[name]) | any_port,
                cwd=repository,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for name in DATABASE_ROLES
        }
        errors = {name: process.communicate(timeout=300)[1] for name, process in processes.items()}
    assert {name: process.returncode for name, process in processes.items()} == dict.fromkeys(DATABASE_ROLES, 1)
    assert {name: text.count("\n") for name, text in errors.items()} == dict.fromkeys(DATABASE_ROLES, 1)
