"""The secrets that a backup holds: keys that cannot be made again. Passwords and certificates can, and are left out."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from localmesh.cluster_backup.errors import TargetError
from localmesh.deploy.init_certs import AUTHORITY
from localmesh.deploy.init_secrets import CHECKPOINT_KEY, CONSOLE_KEYS, SEALING_KEYS, SIGNING_KEYS
from localmesh.deploy.layout import EXECUTOR, Namespaces
from localmesh.deploy.secret_store import OPAQUE, TLS, SecretStore
from localmesh.state.keys import new_rsa_pem

TOOL_SECRETS, EDGE_CERTIFICATE = "tool-secrets", "edge-public-tls"
# By name: in the executor's namespace, and whether a mesh may do without.
_KEPT = {
    SIGNING_KEYS: (False, True),
    CHECKPOINT_KEY: (False, True),
    SEALING_KEYS: (False, True),
    CONSOLE_KEYS: (False, True),
    AUTHORITY: (False, False),
    EDGE_CERTIFICATE: (False, False),
    TOOL_SECRETS: (True, False),
}
Contents = dict[str, dict[str, bytes]]


def read_kept(store: SecretStore, namespaces: Namespaces) -> Contents:
    """Return the content of each secret that exists. Raises TargetError if one is missing that a mesh must have."""
    found: Contents = {}
    for name, (_, required) in _KEPT.items():
        content = store.read(_namespace(name, namespaces), name)
        if content is not None:
            found[name] = content
        elif required:
            raise TargetError(f"secret {name} is missing in namespace {namespaces.mesh}")
    return found


def plan_secrets(store: SecretStore, namespaces: Namespaces, kept: Contents) -> Contents:
    """Return the secrets to create. Raises TargetError if one exists that lacks a key of the backup.

    The keys that sign tokens are no part of it: `replace_signing_keys` decides about them.
    """
    missing: Contents = {}
    for name, content in kept.items():
        present = store.read(_namespace(name, namespaces), name)
        if name == SIGNING_KEYS:
            continue
        if present is None:
            missing[name] = content
        elif not content.items() <= present.items():
            raise TargetError(f"secret {name} exists and lacks a key of the backup")
    return missing


def create_secrets(store: SecretStore, namespaces: Namespaces, missing: Contents) -> None:
    """Create secrets; those that another run has created stay."""
    for name, content in missing.items():
        store.create(_namespace(name, namespaces), name, content, TLS if "tls.key" in content else OPAQUE)
    if SEALING_KEYS in missing:
        # As `init-secrets` does: the executor seals with the keys of authz.
        store.create(namespaces.of(EXECUTOR), SEALING_KEYS, missing[SEALING_KEYS])


def replace_signing_keys(store: SecretStore, namespaces: Namespaces, content: Mapping[str, bytes]) -> None:
    """Put these keys in the place of those that sign tokens."""
    store.replace(namespaces.mesh, SIGNING_KEYS, content)


def new_signing_keys(now: datetime | None = None) -> dict[str, bytes]:
    """Return a key that has signed no token yet."""
    return {f"{now or datetime.now(UTC):%Y%m%dT%H%M%SZ}.pem": new_rsa_pem()}


def write_contents(contents: Contents) -> bytes:
    """Return the contents as JSON."""
    encoded = {
        name: {key: base64.b64encode(value).decode() for key, value in content.items()}
        for name, content in contents.items()
    }
    return json.dumps(encoded).encode()


def parse_contents(chunks: Iterable[bytes]) -> Contents:
    """Return the contents of `write_contents`."""
    return {
        name: {key: base64.b64decode(value) for key, value in content.items()}
        for name, content in json.loads(b"".join(chunks)).items()
    }


def _namespace(name: str, namespaces: Namespaces) -> str:
    in_executors, _ = _KEPT[name]
    return namespaces.of(EXECUTOR) if in_executors else namespaces.mesh
