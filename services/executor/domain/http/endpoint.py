"""Defines the HTTP endpoint of a tool, compiled from its manifest."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from libs.common.url_template import UrlTemplate

# RFC 9110: repeating these has the effect of one.
IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE"})
BODILESS_METHODS = frozenset({"GET", "HEAD"})


class ParameterLocation(StrEnum):
    """Where a parameter or a secret travels."""

    QUERY = "query"
    HEADER = "header"


class ArrayStyle(StrEnum):
    """How the items of an array are written."""

    REPEATED = "repeated"
    COMMA = "comma"
    SPACE = "space"
    PIPE = "pipe"


@dataclass(frozen=True, slots=True)
class HttpParameter:
    """An argument in the query or in a header."""

    argument: str
    place: ParameterLocation
    name: str
    array_style: ArrayStyle | None = None


@dataclass(frozen=True, slots=True)
class SecretUse:
    """A secret in the query or in a header."""

    secret: str
    """The name, without `secret://`."""
    place: ParameterLocation
    name: str
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """One endpoint: the request that every call of the tool makes."""

    method: str
    url: UrlTemplate
    parameters: tuple[HttpParameter, ...] = ()
    body_argument: str = ""
    secrets: tuple[SecretUse, ...] = ()
    idempotency_header: str = ""
    failover: tuple[UrlTemplate, ...] = ()
    """The same address at other origins, in the order in which they are tried."""

    @property
    def urls(self) -> tuple[UrlTemplate, ...]:
        """Every address that a request may go to, in order."""
        return (self.url, *self.failover)

    def is_repeatable(self, idempotency_key: str) -> bool:
        """Return whether a request may be sent twice: by its method, or because it carries a key."""
        return self.method in IDEMPOTENT_METHODS or bool(self.idempotency_header and idempotency_key)
