"""Fetches the secrets of an endpoint, checks where they may go, and gives them the form of headers and query."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import quote

from services.executor.adapters.secrets.binding import require_bound
from services.executor.domain.http.endpoint import HttpEndpoint, ParameterLocation
from services.executor.domain.ports import SecretStore
from services.executor.domain.tool import Tool


@dataclass(frozen=True, slots=True)
class BoundSecrets:
    """The secrets of one call. Its text shows no value."""

    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    query: tuple[str, ...] = field(default=(), repr=False)
    values: tuple[str, ...] = field(default=(), repr=False)
    names: tuple[str, ...] = ()


async def bind_secrets(endpoint: HttpEndpoint, tool: Tool, tenant: str, store: SecretStore) -> BoundSecrets:
    """Return the endpoint's secrets. Raises the errors of the store, and CREDENTIAL_NOT_FOUND for one that is not
    bound to every host of the endpoint and to the namespace of the tool.
    """
    hosts = [url.host for url in endpoint.urls]
    headers: list[tuple[str, str]] = []
    query: list[str] = []
    values: list[str] = []
    for use in endpoint.secrets:
        secret = await store.get(use.secret, tenant)
        require_bound(secret, tool.qualified.rpartition(".")[0], hosts)
        value = use.prefix + secret.value
        values.append(secret.value)
        if use.place is ParameterLocation.HEADER:
            headers.append((use.name.lower(), value))
        else:
            encoded = quote(value, safe="")
            query.append(f"{quote(use.name, safe='')}={encoded}")
            values.append(encoded)
    names = tuple(use.secret for use in endpoint.secrets)
    return BoundSecrets(tuple(headers), tuple(query), tuple(dict.fromkeys(values)), names)
