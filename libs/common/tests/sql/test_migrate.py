"""The migration process, as a cluster's job and a local mesh run it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from libs.common.sql.migrate import migrate
from libs.common.sql.schema import SchemaError, SchemaProblem, ServiceSchema

ENV = "from libs.common.sql.environment import run\n\nrun()\n"
REVISION = """
from alembic import op

revision, down_revision, branch_labels, depends_on = {revision!r}, {before!r}, None, None


def upgrade() -> None:
    op.execute({statement!r})
"""
MAIN = """
import sys
from pathlib import Path
from libs.common.sql.migrate import run_migration
from libs.common.sql.schema import ServiceSchema
run_migration(ServiceSchema("approval", Path(sys.argv[1])))
"""


def add_revision(folder: Path, number: int, statement: str) -> None:
    before = f"{number - 1:04}" if number > 1 else None
    source = REVISION.format(revision=f"{number:04}", before=before, statement=statement)
    (folder / "versions" / f"{number:04}_change.py").write_text(source)


@pytest.fixture
def schema(tmp_path: Path) -> ServiceSchema:
    """A schema of one revision, in a folder of an unusual name."""
    folder = tmp_path / "100%20 odd, \u00fc"
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text(ENV)
    add_revision(folder, 1, "create table things (id int primary key)")
    return ServiceSchema("approval", folder)


def start(schema: ServiceSchema, environment: dict[str, str]) -> subprocess.Popen[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOOLMESH_")}
    command = [sys.executable, "-c", MAIN, str(schema.folder)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env={**inherited, **environment}, text=True, **streams)  # type: ignore[call-overload,no-any-return]


def run(schema: ServiceSchema, url: str) -> tuple[int, str]:
    process = start(schema, {"TOOLMESH_MIGRATION_DATABASE_URL": url})
    output, errors = process.communicate()
    return process.returncode, output + errors


def test_processes_that_run_together_migrate_once(database: Callable[..., str], schema: ServiceSchema) -> None:
    url = database("approval", empty=True)
    processes = [start(schema, {"TOOLMESH_MIGRATION_DATABASE_URL": url}) for _ in range(4)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert sorted("up to date" in output for output in outputs) == [False, True, True, True]


def test_a_migration_that_cannot_run_says_why_in_one_line(database: Callable[..., str], schema: ServiceSchema) -> None:
    """And changes nothing: neither a failing revision, nor a database that is newer or has no schema."""
    url = database("approval", empty=True)
    assert run(schema, url)[0] == 0
    add_revision(schema.folder, 2, "create table others (id int)")
    add_revision(schema.folder, 3, "insert into missing values ('a secret')")
    older = ServiceSchema("approval", schema.folder.parent / "older")
    (older.folder / "versions").mkdir(parents=True)
    (older.folder / "versions" / "0000_none.py").touch()
    attempts = {
        "failing": run(schema, url),
        "older": run(older, url),
        "no schema": run(ServiceSchema("approval", schema.folder), url.rpartition("/")[0] + "/template1"),
        "wrong password": run(schema, url.replace(":test@", ":wrong-password@")),
        "no server": run(schema, "postgresql://approval:wrong-password@127.0.0.1:1/none"),
    }
    assert {name: code for name, (code, _) in attempts.items()} == dict.fromkeys(attempts, 1)
    assert {name: text.count("\n") for name, (_, text) in attempts.items()} == dict.fromkeys(attempts, 1)
    assert not [name for name, (_, text) in attempts.items() if "wrong-password" in text or "a secret" in text]
    with psycopg.connect(url) as connection:
        found = connection.execute("select version_num, to_regclass('approval.others') from approval.schema_version")
        assert found.fetchall() == [("0001", None)]


def test_a_build_leaves_a_newer_schema_on_which_it_works(database: Callable[..., str], schema: ServiceSchema) -> None:
    """As when an upgrade is undone: jobs of the build before run again."""
    url = database("approval", empty=True)
    before = ServiceSchema("approval", schema.folder.parent / "before", oldest="0001")
    shutil.copytree(schema.folder, before.folder)
    add_revision(schema.folder, 2, "create table others (id int)")
    today = replace(schema, oldest="0001")
    for build, found in ((before, None), (today, "0001"), (before, "0002"), (today, "0002")):
        assert migrate(url, build) == found
    assert run(before, url)[0] == 0
    assert migrate(url, replace(today, oldest="0002")) == "0002"
    assert run(before, url)[0] == 1


def test_each_failure_has_its_kind(database: Callable[..., str], schema: ServiceSchema) -> None:
    url = database("approval", empty=True)
    add_revision(schema.folder, 2, "select no_such_function()")
    failures = {
        SchemaProblem.MIGRATION_FAILED: url,
        SchemaProblem.SCHEMA_MISSING: url.rpartition("/")[0] + "/template1",
        SchemaProblem.UNREACHABLE: url.rpartition("/")[0] + "/none",
    }
    for problem, place in failures.items():
        with pytest.raises(SchemaError) as caught:
            migrate(place, schema)
        assert caught.value.problem is problem


@pytest.mark.parametrize("environment", [{}, {"TOOLMESH_DATABASE_URL": "postgresql://approval:p@127.0.0.1:1/none"}])
def test_settings_that_are_wrong_end_it_with_code_2(schema: ServiceSchema, environment: dict[str, str]) -> None:
    process = start(schema, environment)
    process.communicate()
    assert process.returncode == 2
