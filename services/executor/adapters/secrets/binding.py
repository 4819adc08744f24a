"""Checks that a credential may be used by a tool and sent to a host."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from toolmesh.registry.v1 import upstream_pb2

from libs.common.errors import MeshError
from libs.common.secret_store.secret import Secret
from services.executor.domain import errors
from services.executor.domain.arguments.hosts import Hosts
from services.executor.domain.ports import SecretStore


def require_bound(secret: Secret, namespace: str, hosts: Iterable[str]) -> None:
    """Raise CREDENTIAL_NOT_FOUND unless the secret is bound to the namespace and to every host or pattern of hosts."""
    if namespace not in secret.binding.namespaces:
        raise errors.credential_not_bound(secret.name, namespace)
    bound = Hosts(secret.binding.hosts)
    for host in hosts:
        if host not in bound:
            raise errors.credential_not_bound(secret.name, host)


async def bind_metadata(
    uses: Iterable[upstream_pb2.MetadataSecret], namespace: str, host: str, tenant: str, store: SecretStore
) -> list[tuple[upstream_pb2.MetadataSecret, Secret]]:
    """Return the secrets of a server's headers or metadata with their places. Raises the errors of credentials."""
    bound = []
    for use in uses:
        secret = await store.get(use.secret.removeprefix("secret://"), tenant)
        require_bound(secret, namespace, (host,))
        bound.append((use, secret))
    return bound


async def reject_secrets(store: SecretStore, names: Iterable[str], tenant: str) -> None:
    """Tell the store that a service refused a call with these credentials. Raises nothing."""
    for name in names:
        with suppress(MeshError):
            await store.reject(name, tenant)
