"""Creates the roles and schemas of the mesh in a PostgreSQL server, from the URLs that services will use."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import psycopg

from localmesh.deploy.admin_url import AdminUrlError, open_admin_url
from localmesh.deploy.layout import OWNERS, Namespaces, database_secret, owner_secret
from localmesh.deploy.secret_store import SecretStore
from localmesh.parts.schemas import DATABASE, provisioning_sql


class InitDatabaseError(Exception):
    """The database cannot be prepared. The message holds no password."""


def init_database(store: SecretStore, namespaces: Namespaces) -> None:
    """Create the database, the roles and their schemas. Running it again changes passwords alone."""
    sql = provisioning_sql(read_passwords(store, namespaces), OWNERS)
    try:
        with open_admin_url(store, namespaces) as url:
            with _connect(url) as connection:
                if connection.execute("select from pg_database where datname = %s", (DATABASE,)).fetchone() is None:
                    connection.execute(f"create database {DATABASE}".encode())
            with _connect(urlunsplit(urlsplit(url)._replace(path=f"/{DATABASE}"))) as connection:
                connection.execute(sql.encode())
    except AdminUrlError as error:
        raise InitDatabaseError(str(error)) from None


def read_passwords(store: SecretStore, namespaces: Namespaces) -> dict[str, str]:
    """Return the password of every role, from the secrets with their URLs. Raises InitDatabaseError."""
    passwords = {}
    for service, owner in OWNERS.items():
        for role, name in ((service, database_secret(service)), (owner, owner_secret(service))):
            parts = urlsplit(_url(store, namespaces.of(service), name))
            # SQL quotes it: a password with other characters could end the quotation.
            if parts.username != role or not (parts.password or "").isalnum():
                raise InitDatabaseError(f"secret {name} is not the URL of {role} with a password of letters and digits")
            passwords[role] = parts.password or ""
    return passwords


def _url(store: SecretStore, namespace: str, name: str) -> str:
    content = store.read(namespace, name)
    if content is None or "url" not in content:
        raise InitDatabaseError(f"secret {name} in namespace {namespace} is missing or has no `url`")
    return content["url"].decode().strip()


def _connect(url: str) -> psycopg.Connection[tuple[object, ...]]:
    try:
        return psycopg.connect(url, autocommit=True, connect_timeout=10, application_name="toolmesh-init-db")
    except psycopg.OperationalError as error:
        # The driver's first line names host, port and role.
        raise InitDatabaseError(str(error).partition("\n")[0]) from None
