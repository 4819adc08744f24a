"""The roles and schemas of the services, as SQL."""

from __future__ import annotations

from collections.abc import Mapping

from localmesh.state.secrets import DATABASE_ROLES, SCHEMA_OWNERS

DATABASE = "toolmesh"
# Its migrations grant to the service what it may do, table by table; the others' own what their services work with.
GRANTS_BY_MIGRATION = {"audit"}


def create_database_script() -> str:
    """Returns psql commands that create the mesh's database if there is none, and connect to it."""
    return f"""\
\\set ON_ERROR_STOP on
SELECT 'CREATE DATABASE {DATABASE}' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '{DATABASE}') \\gexec
\\connect {DATABASE}
"""  # noqa: S608  (a constant)


def provisioning_sql(
    passwords: Mapping[str, str], owners: Mapping[str, str] = SCHEMA_OWNERS, database: str = DATABASE
) -> str:
    """Returns SQL that creates each service's role and schema and revokes other privileges. It is idempotent.

    `owners` names the role that owns a schema where the service's own does not. It runs in `database`.
    """
    roles = [_role_sql(owner, passwords[owner], schema, database) for schema, owner in owners.items()]
    roles += [_role_sql(role, passwords[role], role, database) for role in DATABASE_ROLES]
    schemas = [_schema_sql(role, owners.get(role, role)) for role in DATABASE_ROLES]
    statements = "\n".join([*roles, *schemas])
    return f"""\
SET client_min_messages = warning;
SET log_min_error_statement = panic; -- a statement that fails must not take its password into the log
BEGIN;
REVOKE ALL ON DATABASE {database}, postgres, template1 FROM PUBLIC;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
{statements}
COMMIT;
"""


def _role_sql(role: str, password: str, schema: str, database: str) -> str:
    return f"""\
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN CREATE ROLE {role}; END IF;
END $$;
ALTER ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD '{password}';
ALTER ROLE {role} IN DATABASE {database} SET search_path = {schema};
GRANT CONNECT ON DATABASE {database} TO {role};"""


def _schema_sql(schema: str, owner: str) -> str:
    create = f"CREATE SCHEMA IF NOT EXISTS {schema} AUTHORIZATION {owner};"
    if owner == schema or schema in GRANTS_BY_MIGRATION:
        return create
    future = f"ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema} GRANT"
    return f"""\
{create}
GRANT USAGE ON SCHEMA {schema} TO {schema};
{future} SELECT, INSERT, UPDATE, DELETE ON TABLES TO {schema};
{future} USAGE, SELECT, UPDATE ON SEQUENCES TO {schema};"""
