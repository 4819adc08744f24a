"""Creates the keys and passwords of a cluster's mesh as secrets. What exists is never changed."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import urlsplit

from localmesh.deploy.layout import EXECUTOR, OWNERS, Namespaces, database_secret, owner_secret, redis_secret
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


def init_database_urls(store: SecretStore, namespaces: Namespaces, server: str) -> None:
    """Create the URLs of every role of PostgreSQL at `host:port`, each with a password of its own."""
    _create_url(store, namespaces.mesh, ADMIN, f"postgresql://{DATABASE_OWNER}:{{}}@{server}/postgres")
    for service in DATABASE_ROLES:
        namespace = namespaces.of(service)
        own, owner = (f"postgresql://{role}:{{}}@{server}/{DATABASE}" for role in (service, OWNERS[service]))
        _create_url(store, namespace, database_secret(service), own)
        _create_url(store, namespace, owner_secret(service), owner)


def init_redis_urls(store: SecretStore, namespaces: Namespaces, server: str) -> None:
    """Create the URLs of every user of Valkey at `host:port`, and the configuration that admits them."""
    passwords = {}
    for user in VALKEY_USERS:
        namespace, name = namespaces.of(user), redis_secret(user)
        _create_url(store, namespace, name, f"redis://{user}:{{}}@{server}/0")
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


def _create_url(store: SecretStore, namespace: str, name: str, template: str) -> None:
    if store.read(namespace, name) is None:
        store.create(namespace, name, {"url": template.format(new_password().decode()).encode()})


def _password_of(url: bytes) -> str:
    return urlsplit(url.decode()).password or ""
