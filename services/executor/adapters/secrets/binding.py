"""Checks that a credential may be used by a tool and sent to a host."""

from __future__ import annotations

from collections.abc import Iterable

from libs.common.secret_store.secret import Secret
from services.executor.domain import errors
from services.executor.domain.arguments.hosts import Hosts


def require_bound(secret: Secret, namespace: str, hosts: Iterable[str]) -> None:
    """Raise CREDENTIAL_NOT_FOUND unless the secret is bound to the namespace and to every host or pattern of hosts."""
    if namespace not in secret.binding.namespaces:
        raise errors.credential_not_bound(secret.name, namespace)
    bound = Hosts(secret.binding.hosts)
    for host in hosts:
        if host not in bound:
            raise errors.credential_not_bound(secret.name, host)
