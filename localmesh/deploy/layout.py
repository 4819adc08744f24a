"""Where a cluster has what: namespaces, names of services and of secrets."""

from __future__ import annotations

from dataclasses import dataclass

from localmesh.state.secrets import DATABASE_ROLES

EXECUTOR = "executor"
# Services, Envoy and clients listen and connect here.
SERVICE_PORT = 8443
# Where pods find the secrets with URLs, and in each, beside its `url`, the authority of a server that has TLS.
DATABASE_MOUNT, OWNER_MOUNT, REDIS_MOUNT = "/run/secrets/database", "/run/secrets/owner", "/run/secrets/redis"
STORES_CA = "ca.crt"
# No service owns its tables: a role of migrations does, whose password only the job has.
OWNERS = {role: f"{role}_owner" for role in DATABASE_ROLES}


@dataclass(frozen=True)
class Namespaces:
    """The executor has a namespace of its own: its sandboxes need what Pod Security `restricted` forbids."""

    mesh: str = "toolmesh"
    executor: str = "toolmesh-executor"

    def of(self, identity: str) -> str:
        """Return the namespace of a service's or client's pods and secrets."""
        return self.executor if identity == EXECUTOR else self.mesh

    def host(self, service: str) -> str:
        """Return the name by which pods of both namespaces reach a service."""
        return f"{service}.{self.of(service)}"


def tls_secret(identity: str) -> str:
    """Return the name of an identity's certificate, which cert-manager would write under the same keys."""
    return f"{identity}-tls"


def database_secret(service: str) -> str:
    """Return the name of the secret with the URL of a service's own role."""
    return f"{service}-database"


def owner_secret(service: str) -> str:
    """Return the name of the secret with the URL of the role that migrates a service's schema."""
    return f"{service}-database-owner"


def redis_secret(service: str) -> str:
    """Return the name of the secret with the URL of a service's user of Valkey."""
    return f"{service}-redis"
