"""The credentials of MCP servers: variables of a confined one, headers of a remote one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from toolmesh.registry.v1 import upstream_pb2

from libs.common.json.jsonio import dump
from services.executor.adapters.secrets.binding import require_bound
from services.executor.adapters.secrets.remove_values import remove_values
from services.executor.adapters.upstreams.directory import UpstreamConfig
from services.executor.domain.ports import SecretStore

# A fingerprint says whether a value changed, and to this process alone.
_KEY = os.urandom(32)


@dataclass(frozen=True, slots=True)
class ServerSecrets:
    """The credentials of one server, read for one call. Its text shows no value."""

    places: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What each variable or header is set to."""
    values: tuple[str, ...] = field(default=(), repr=False)
    names: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Differs when a value does; empty without secrets."""
        if not self.places:
            return ""
        return hashlib.blake2b(dump(dict(self.places)), key=_KEY, digest_size=16).hexdigest()

    def remove_from(self, content: bytes) -> bytes:
        """Return what a server sent without the values."""
        return remove_values(content, self.values)


NO_SECRETS = ServerSecrets()


async def read_secrets(upstream: UpstreamConfig, tenant: str, store: SecretStore) -> ServerSecrets:
    """Return the credentials of an upstream's server for a tenant. Raises the errors of credentials.

    What enters a sandbox may leave it to any host that the sandbox reaches, so a secret is bound to all of them.
    """
    if upstream.endpoint.WhichOneof("kind") == "mcp_http":
        remote = upstream.endpoint.mcp_http
        host = (urlsplit(remote.url).hostname or "").lower()
        uses = [(use.key, use.secret, use.prefix) for use in remote.secrets]
        return await _read(uses, upstream.upstream_id, (host,), tenant, store)
    confined: upstream_pb2.McpStdioEndpoint = upstream.endpoint.mcp_stdio
    hosts = tuple(host.lower() for host in confined.allowed_hosts)
    return await _read(
        [(use.variable, use.secret, "") for use in confined.secrets], upstream.upstream_id, hosts, tenant, store
    )


async def _read(
    uses: Iterable[tuple[str, str, str]], namespace: str, hosts: tuple[str, ...], tenant: str, store: SecretStore
) -> ServerSecrets:
    places: dict[str, str] = {}
    values, names = list[str](), list[str]()
    for place, reference, prefix in uses:
        secret = await store.get(reference.removeprefix("secret://"), tenant)
        require_bound(secret, namespace, hosts)
        places[place] = prefix + secret.value
        values.append(secret.value)
        names.append(secret.name)
    return ServerSecrets(places, tuple(dict.fromkeys(values)), tuple(names)) if places else NO_SECRETS
