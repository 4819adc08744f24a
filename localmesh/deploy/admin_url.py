"""The URL of PostgreSQL's administrator, as commands on this machine use it."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

from localmesh.deploy.init_secrets import ADMIN, query_with
from localmesh.deploy.layout import STORES_CA, Namespaces
from localmesh.deploy.secret_store import SecretStore

_PORT = 5432


class AdminUrlError(Exception):
    """There is no usable URL. The message holds no password."""


@contextmanager
def open_admin_url(store: SecretStore, namespaces: Namespaces, server: str = "") -> Iterator[str]:
    """Give the URL for as long as the block runs: the authority of its secret is in a file so long.

    `server` is host:port if this machine needs another one, such as a forwarded port or a tunnel. A server whose name
    is checked has to prove its own name through it.
    """
    content = store.read(namespaces.mesh, ADMIN)
    if content is None or "url" not in content:
        raise AdminUrlError(f"secret {ADMIN} in namespace {namespaces.mesh} is missing or has no `url`")
    parts = urlsplit(content["url"].decode().strip())
    with tempfile.TemporaryDirectory(prefix="toolmesh-") as folder:
        if authority := content.get(STORES_CA):
            file = Path(folder) / STORES_CA
            file.write_bytes(authority)
            parts = _with_options(parts, sslrootcert=str(file))
        yield urlunsplit(_through(parts, server) if server else parts)


def _through(parts: SplitResult, server: str) -> SplitResult:
    login = parts.netloc.rpartition("@")[0]
    if dict(parse_qsl(parts.query)).get("sslmode") != "verify-full":
        return parts._replace(netloc=f"{login}@{server}")
    try:
        tunnel = urlsplit(f"//{server}")
        port = tunnel.port or parts.port or _PORT
        address = str(socket.getaddrinfo(tunnel.hostname, port)[0][4][0])
    except (OSError, ValueError):
        raise AdminUrlError(f"{server} is no host:port with an address") from None
    name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return _with_options(parts._replace(netloc=f"{login}@{name}:{port}"), hostaddr=address)


def _with_options(parts: SplitResult, **options: str) -> SplitResult:
    return parts._replace(query=query_with(parts.query, options))
