"""Migrations only add, so that replicas of the build before go on while a version is rolled out.

Each revision is run on a real PostgreSQL, and the catalog before it is compared with the catalog after it: whatever the
build before reads, writes or names in `on conflict` must still be there, back to the oldest build that a schema says it
works with. A revision that takes something away is listed here with the earlier revision that added its replacement,
which a release must lie between, and which the schema then names as its oldest.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from libs.common.sql.schema import ServiceSchema
from tests.fixtures import owners_url

SERVICES = ("registry", "authz", "executor", "approval", "audit")
# Revision that contracts: the earlier revision that expanded, at least one release before.
CONTRACTIONS: dict[tuple[str, str], str] = {}
_COLUMNS = """
    select table_name, column_name, data_type || ' ' || udt_name, is_nullable = 'YES',
        is_nullable = 'YES' or column_default is not null or is_identity = 'YES' or is_generated = 'ALWAYS'
    from information_schema.columns where table_schema = %s
"""
_UNIQUE = """
    select t.relname, pg_get_indexdef(i.indexrelid, 0, true)
    from pg_index i join pg_class t on t.oid = i.indrelid join pg_namespace n on n.oid = t.relnamespace
    where n.nspname = %s and i.indisunique
"""
_CHECKS = """
    select t.relname, pg_get_constraintdef(c.oid)
    from pg_constraint c join pg_class t on t.oid = c.conrelid join pg_namespace n on n.oid = t.relnamespace
    where n.nspname = %s and c.contype in ('c', 'f', 'x')
"""
_FUNCTIONS = """
    select p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')'
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = %s
"""


@dataclass(frozen=True)
class Catalog:
    """What a build may rely on in a schema."""

    columns: dict[tuple[str, str], tuple[str, bool, bool]] = field(default_factory=dict)
    """By table and name: type, whether it may be null, whether a row may be inserted without it."""
    unique: frozenset[tuple[str, str]] = frozenset()
    checks: frozenset[tuple[str, str]] = frozenset()
    functions: frozenset[str] = frozenset()

    @property
    def tables(self) -> set[str]:
        return {table for table, _ in self.columns}


def read_catalog(url: str, schema: str) -> Catalog:
    with psycopg.connect(url) as connection:

        def rows(query: str) -> list[tuple[str, ...]]:
            return connection.execute(query.encode(), (schema,)).fetchall()

        columns = {(row[0], row[1]): (row[2], bool(row[3]), bool(row[4])) for row in rows(_COLUMNS)}
        unique = frozenset((row[0], row[1]) for row in rows(_UNIQUE))
        checks = frozenset((row[0], row[1]) for row in rows(_CHECKS))
        return Catalog(columns, unique, checks, frozenset(row[0] for row in rows(_FUNCTIONS)))


def contractions(before: Catalog, after: Catalog) -> Iterator[str]:
    """Yield what the build before would miss."""
    for place, (kind, nullable, _) in before.columns.items():
        table, name = place
        if place not in after.columns:
            yield f"{table}.{name} is gone"
        elif after.columns[place][0] != kind:
            yield f"{table}.{name} has another type"
        elif nullable and not after.columns[place][1]:
            yield f"{table}.{name} may not be null any more"
    for table, name in after.columns.keys() - before.columns.keys():
        if table in before.tables and not after.columns[table, name][2]:
            yield f"{table}.{name} is needed by every insert"
    for table, definition in before.unique - after.unique:
        yield f"{table} has lost {definition}"
    for kind_before, kind_after in ((before.unique, after.unique), (before.checks, after.checks)):
        for table, definition in kind_after - kind_before:
            if table in before.tables:
                yield f"{table} has got {definition}"
    yield from (f"function {name} is gone" for name in before.functions - after.functions)


def revisions(schema: ServiceSchema) -> list[str]:
    scripts = ScriptDirectory(str(schema.folder))
    return [script.revision for script in reversed(list(scripts.walk_revisions()))]


def migrate_to(url: str, schema: ServiceSchema, revision: str) -> None:
    engine = create_engine(
        url.replace("postgresql://", "postgresql+psycopg://", 1),
        connect_args={"options": f"-c search_path={schema.name}"},
    )
    config = Config()
    config.set_main_option("script_location", str(schema.folder).replace("%", "%%"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()


@pytest.mark.parametrize("service", SERVICES)
def test_a_revision_takes_nothing_away_from_the_build_before(service: str, database: Callable[..., str]) -> None:
    schema: ServiceSchema = importlib.import_module(f"services.{service}.migrations").SCHEMA
    url = owners_url(database(service, empty=True))
    migrate_to(url, schema, schema.oldest)
    catalog, found = read_catalog(url, service), {}
    for revision in revisions(schema):
        if revision > schema.oldest:
            before = catalog
            migrate_to(url, schema, revision)
            catalog = read_catalog(url, service)
            if problems := sorted(contractions(before, catalog)):
                found[revision] = problems
    assert schema.oldest >= max((CONTRACTIONS[place] for place in CONTRACTIONS if place[0] == service), default="")
    listed = {revision for name, revision in CONTRACTIONS if name == service}
    assert {revision: problems for revision, problems in found.items() if revision not in listed} == {}
    assert listed == found.keys() & listed


def test_a_contraction_names_an_earlier_expansion() -> None:
    assert [(place, expanded) for place, expanded in CONTRACTIONS.items() if not expanded < place[1]] == []


CHANGES = {
    "alter table things drop column name": "things.name is gone",
    "alter table things rename column name to title": "things.name is gone",
    "alter table things alter column name type varchar(3)": "things.name has another type",
    "alter table things alter column name set not null": "things.name may not be null any more",
    "alter table things add column size int not null default 0; alter table things alter column size drop default": (
        "things.size is needed by every insert"
    ),
    "alter table things drop constraint things_pkey": "things has lost",
    "create unique index by_name on things (name)": "things has got",
    "alter table things add check (id > 0)": "things has got",
    "drop function answer()": "function answer() is gone",
    "drop table others": "others.id is gone",
}
EXPANSIONS = (
    "alter table things add column size int",
    "alter table things add column size int not null default 0",
    "create table more (id int primary key, name text not null)",
    "create index by_name on things (name)",
    "alter table things alter column id drop default",
    "create function other() returns int language sql as 'select 1'",
)


@pytest.fixture
def things(database: Callable[..., str]) -> str:
    url = owners_url(database("registry", empty=True))
    with psycopg.connect(url) as connection:
        connection.execute("set search_path = registry")
        connection.execute("create table things (id serial primary key, name text)")
        connection.execute("create table others (id int)")
        connection.execute("create function answer() returns int language sql as 'select 42'")
    return url


def compared(url: str, change: str) -> list[str]:
    before = read_catalog(url, "registry")
    with psycopg.connect(url) as connection:
        connection.execute(f"set search_path = registry; {change}".encode())
    return list(contractions(before, read_catalog(url, "registry")))


@pytest.mark.parametrize("change", CHANGES)
def test_what_takes_something_away_is_seen(things: str, change: str) -> None:
    assert any(problem.startswith(CHANGES[change]) for problem in compared(things, change))


@pytest.mark.parametrize("change", EXPANSIONS)
def test_what_only_adds_is_accepted(things: str, change: str) -> None:
    assert compared(things, change) == []
