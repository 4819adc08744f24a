"""Creates the keys and passwords of a cluster's mesh as secrets. What exists stays, but a URL may be given TLS."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from localmesh.deploy.layout import (
    DATABASE_MOUNT,
    EXECUTOR,
    OWNER_MOUNT,
    OWNERS,
    REDIS_MOUNT,
    STORES_CA,
    Namespaces,
    database_secret,
    owner_secret,
    redis_secret,
)
from localmesh.deploy.secret_store import SecretStore
from localmesh.parts.schemas import DATABASE
from localmesh.parts.valkey import CONFIGURATION, render_users
from localmesh.state.keys import new_ed25519_pem, new_password, new_rsa_pem, new_sealing_key
from localmesh.state.secrets import DATABASE_OWNER, DATABASE_ROLES, VALKEY_USERS

SIGNING_KEYS, SEALING_KEYS, CONSOLE_KEYS = "authz-signing-keys", "sealing-keys", "console-keys"
CHECKPOINT_KEY, ADMIN, VALKEY = "audit-checkpoint-key", "postgres-admin", "valkey-config"


def init_keys(store: SecretStore, namespaces: Namespaces, now: datetime | None = None) -> None:
    """Create the keys that sign tokens and checkpoints and that seal stored values."""
    stamp = f"{now or datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    mesh = namespaces.mesh
    if store.read(mesh, SIGNING_KEYS) is None:
        store.create(mesh, SIGNING_KEYS, {f"{stamp}.pem": new_rsa_pem()})
    if store.read(mesh, CHECKPOINT_KEY) is None:
        store.create(mesh, CHECKPOINT_KEY, {"checkpoint.pem": new_ed25519_pem()})
    for name in (SEALING_KEYS, CONSOLE_KEYS):
        if store.read(mesh, name) is None:
            store.create(mesh, name, {f"{stamp}.key": new_sealing_key()})
    # The executor seals results, authz arguments of decisions: the same keys, in both namespaces.
    sealing = store.read(mesh, SEALING_KEYS)
    if sealing is not None and store.read(namespaces.of(EXECUTOR), SEALING_KEYS) is None:
        store.create(namespaces.of(EXECUTOR), SEALING_KEYS, sealing)


def init_database_urls(store: SecretStore, namespaces: Namespaces, server: str, authority: bytes = b"") -> None:
    """Create the URLs of every role of PostgreSQL at `host:port`, each with a password of its own.

    With an authority all of them ask for TLS and check the server's name, also those that exist.
    """
    # Commands read the administrator's, and keep the authority where they run.
    admin = f"postgresql://{DATABASE_OWNER}:{{}}@{server}/postgres"
    _put_url(store, namespaces.mesh, ADMIN, admin, authority, {"sslmode": "verify-full"})
    for service in DATABASE_ROLES:
        secrets = (
            (service, database_secret(service), DATABASE_MOUNT),
            (OWNERS[service], owner_secret(service), OWNER_MOUNT),
        )
        for role, name, mount in secrets:
            options = {"sslmode": "verify-full", "sslrootcert": f"{mount}/{STORES_CA}"}
            url = f"postgresql://{role}:{{}}@{server}/{DATABASE}"
            _put_url(store, namespaces.of(service), name, url, authority, options)


def init_redis_urls(store: SecretStore, namespaces: Namespaces, server: str, authority: bytes = b"") -> None:
    """Create the URLs of every user of Valkey at `host:port`, and the configuration that admits them.

    With an authority all of them use TLS and check the server's name, also those that exist.
    """
    passwords = {}
    options = {"ssl_ca_certs": f"{REDIS_MOUNT}/{STORES_CA}", "ssl_check_hostname": "true"}
    for user in VALKEY_USERS:
        namespace, name = namespaces.of(user), redis_secret(user)
        _put_url(store, namespace, name, f"redis://{user}:{{}}@{server}/0", authority, options)
        passwords[user] = _password_of((store.read(namespace, name) or {})["url"])
    if store.read(namespaces.mesh, VALKEY) is None:
        store.create(namespaces.mesh, VALKEY, {"valkey.conf": _valkey_configuration(passwords, server)})


def _valkey_configuration(passwords: dict[str, str], server: str) -> bytes:
    port = server.rpartition(":")[2]
    text = CONFIGURATION.format(
        # Every address of its pod: a network policy decides which pods reach it.
        address="* -::*",
        port=port,
        password=new_password().decode(),
        folder="/data",
        users=render_users(passwords),
    )
    return text.encode()


def query_with(query: str, options: Mapping[str, str]) -> str:
    """Return the query of a URL with options added or replaced."""
    return urlencode({**dict(parse_qsl(query, keep_blank_values=True)), **options}, safe="/")


def _put_url(
    store: SecretStore, namespace: str, name: str, template: str, authority: bytes, options: Mapping[str, str]
) -> None:
    """Create a URL with a new password if there is none; with an authority, let it have TLS with these options."""
    found = store.read(namespace, name)
    content = found or {"url": template.format(new_password().decode()).encode()}
    if authority:
        content = {**content, "url": _with_tls(content["url"], options), STORES_CA: authority}
    if found is None:
        store.create(namespace, name, content)
    elif content != found:
        store.replace(namespace, name, content)


def _with_tls(url: bytes, options: Mapping[str, str]) -> bytes:
    parts = urlsplit(url.decode().strip())
    scheme = "rediss" if parts.scheme == "redis" else parts.scheme
    return urlunsplit(parts._replace(scheme=scheme, query=query_with(parts.query, options))).encode()


def _password_of(url: bytes) -> str:
    return urlsplit(url.decode()).password or ""
