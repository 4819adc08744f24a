"""The roles and schemas of the services, as SQL."""

from __future__ import annotations

from collections.abc import Mapping

from localmesh.state.secrets import DATABASE_ROLES, SCHEMA_OWNERS

DATABASE = "toolmesh"


def provisioning_sql(passwords: Mapping[str, str]) -> str:
    """Returns a psql script that creates each service's role and schema and revokes other privileges. It is
    idempotent."""
    owners = [_role_sql(owner, passwords[owner], schema) for schema, owner in SCHEMA_OWNERS.items()]
    roles = "\n".join([*owners, *(_role_sql(role, passwords[role], role) for role in DATABASE_ROLES)])
    schemas = "\n".join(_schema_sql(role, SCHEMA_OWNERS.get(role, role)) for role in DATABASE_ROLES)
    return f"""\
\\set ON_ERROR_STOP on
SELECT 'CREATE DATABASE {DATABASE}' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '{DATABASE}') \\gexec
\\connect {DATABASE}
SET client_min_messages = warning;
SET log_min_error_statement = panic; -- a statement that fails must not take its password into the log
BEGIN;
REVOKE ALL ON DATABASE {DATABASE}, postgres, template1 FROM PUBLIC;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
{roles}
{schemas}
COMMIT;
"""  # noqa: S608  (names are constants, passwords are hexadecimal)


def _role_sql(role: str, password: str, schema: str) -> str:
    return f"""\
SELECT 'CREATE ROLE {role}' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') \\gexec
ALTER ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD '{password}';
ALTER ROLE {role} IN DATABASE {DATABASE} SET search_path = {schema};
GRANT CONNECT ON DATABASE {DATABASE} TO {role};"""  # noqa: S608


def _schema_sql(schema: str, owner: str) -> str:
    return f"CREATE SCHEMA IF NOT EXISTS {schema} AUTHORIZATION {owner};"
