"""Issues the certificates of a cluster's mesh as secrets, for clusters without cert-manager.

The authority's key stays in a secret that no service may read, so that certificates can be renewed under it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from localmesh.deploy.layout import Namespaces, tls_secret
from localmesh.deploy.secret_store import TLS, SecretStore
from localmesh.state.certificates import Authority, Leaf, expiry
from localmesh.state.pki import IDENTITIES

AUTHORITY = "mesh-ca"
# Long enough to notice that a renewal was forgotten, short enough that a stolen key ends by itself.
LIFETIME = timedelta(days=90)
AUTHORITY_LIFETIME = timedelta(days=3650)


def init_certificates(
    store: SecretStore, namespaces: Namespaces, now: datetime | None = None, renew_before: timedelta = LIFETIME / 3
) -> list[str]:
    """Issue what is missing or ends soon, and return the identities. Certificates that last stay as they are."""
    now = now or datetime.now(UTC)
    authority = _authority(store, namespaces, now)
    issued = []
    for identity in IDENTITIES:
        namespace, name = namespaces.of(identity), tls_secret(identity)
        if not _lasts(store.read(namespace, name), authority, now + renew_before):
            leaf = authority.issue(identity, now, LIFETIME, dns_names(identity, namespaces))
            store.replace(namespace, name, _content(leaf, authority), TLS)
            issued.append(identity)
    return issued


def dns_names(identity: str, namespaces: Namespaces) -> tuple[str, ...]:
    """Return the names by which peers reach a service, inside its namespace and from another."""
    host = namespaces.host(identity)
    return (identity, host, f"{host}.svc", "localhost")


def _authority(store: SecretStore, namespaces: Namespaces, now: datetime) -> Authority:
    stored = store.read(namespaces.mesh, AUTHORITY)
    if stored is None:
        made = Authority.create(now, AUTHORITY_LIFETIME)
        store.create(namespaces.mesh, AUTHORITY, {"tls.crt": made.certificate, "tls.key": made.key_pem}, TLS)
        # Of two that ran together, the one that came first.
        stored = store.read(namespaces.mesh, AUTHORITY) or {}
    return Authority.load(stored["tls.crt"], stored["tls.key"])


def _content(leaf: Leaf, authority: Authority) -> dict[str, bytes]:
    return {"tls.crt": leaf.certificate, "tls.key": leaf.key_pem, "ca.crt": authority.certificate}


def _lasts(stored: dict[str, bytes] | None, authority: Authority, until: datetime) -> bool:
    if stored is None or stored.get("ca.crt") != authority.certificate:
        return False
    return expiry(stored["tls.crt"]) > until
