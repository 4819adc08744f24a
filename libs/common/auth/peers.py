"""The mesh name of a peer, from its certificate."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

# Mesh names beside those of the services.
EDGE = "edge"
OPERATOR = "operator"
ORCHESTRATOR = "orchestrator"
_ALTERNATIVE_NAME = "x509_subject_alternative_name"
SERVICES = ("registry", "authz", "executor", "approval", "audit", "gateway")


def spiffe_id(trust_domain: str, name: str) -> str:
    """Return the URI that a certificate of this name carries."""
    return f"spiffe://{trust_domain}/{name}"


def peer_name(trust_domain: str, sans: Iterable[str]) -> str:
    """Return the mesh name among a certificate's alternative names; empty when there is not exactly one."""
    prefix = f"spiffe://{trust_domain}/"
    names = [san[len(prefix) :] for san in sans if san.startswith(prefix)]
    return names[0] if len(names) == 1 else ""


@lru_cache(maxsize=1024)
def peer_of(trust_domain: str, identity_key: str | None, identities: tuple[bytes, ...]) -> str:
    """Return the mesh name of a gRPC peer; empty for a peer without a mesh certificate. Each peer calls many times."""
    if identity_key != _ALTERNATIVE_NAME:
        # Without alternative names gRPC falls back to the common name, which is not trusted.
        return ""
    prefix = f"spiffe://{trust_domain}/".encode()
    names = [san for san in identities if san.startswith(prefix)]
    return names[0][len(prefix) :].decode() if len(names) == 1 else ""
