"""A credential and where it may be used. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from libs.common.url_template import UrlTemplateError, parse_url_template

SCHEME = "secret://"
MAX_VALUE = 8192
MAX_ENTRIES = 64
_MAX_TEXT = 1024
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_HOST = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?")
_NAMESPACE = re.compile(r"[a-z][a-z0-9-]{1,62}")


class SecretFormError(ValueError):
    """A secret, its name or its binding is malformed. The message never holds the value."""


class GrantType(StrEnum):
    """How a token is asked for."""

    CLIENT_CREDENTIALS = "client_credentials"
    TOKEN_EXCHANGE = "token_exchange"  # noqa: S105
    """On behalf of the caller, by RFC 8693."""


class ClientAuth(StrEnum):
    """Where the client's secret travels to the authorization server."""

    BASIC = "basic"
    BODY = "body"


class OAuthClient(Struct, frozen=True, forbid_unknown_fields=True):
    """Makes a secret the password of an OAuth 2 client. What is sent to services is the token that it gets."""

    token_url: str
    client_id: str
    grant: GrantType = GrantType.CLIENT_CREDENTIALS
    scope: str = ""
    audience: str = ""
    auth: ClientAuth = ClientAuth.BASIC

    def check(self) -> None:
        """Raise SecretFormError if a field is malformed."""
        try:
            parse_url_template(self.token_url)
        except UrlTemplateError:
            raise SecretFormError("token_url is not an address such as https://login.example.com/token") from None
        texts = (self.client_id, self.scope, self.audience)
        if not self.client_id or not all(_is_printable(text) for text in texts):
            raise SecretFormError(
                f"client_id, scope and audience are printable ASCII of at most {_MAX_TEXT} characters"
            )


class Binding(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a secret may be used. Without hosts it is for code that reaches none, such as one that signs."""

    hosts: tuple[str, ...] = ()
    """Host names that it may be sent to; `*.example.com` covers one level."""
    namespaces: tuple[str, ...] = ()
    """The namespaces of the tools that may use it."""
    expires: datetime | None = None
    oauth: OAuthClient | None = None

    def check(self) -> Binding:
        """Return the binding with canonical hosts. Raises SecretFormError."""
        hosts = tuple(dict.fromkeys(host.lower().removesuffix(".") for host in self.hosts))
        namespaces = tuple(dict.fromkeys(self.namespaces))
        if len(hosts) > MAX_ENTRIES or not all(_HOST.fullmatch(host) for host in hosts):
            raise SecretFormError("hosts is not a list of host names such as api.example.com or *.example.com")
        if not 1 <= len(namespaces) <= MAX_ENTRIES or not all(_NAMESPACE.fullmatch(name) for name in namespaces):
            raise SecretFormError("namespaces is not a list of namespaces of tools")
        if self.expires is not None and self.expires.tzinfo is None:
            raise SecretFormError("expires has no time zone")
        if self.oauth is not None:
            self.oauth.check()
        return Binding(hosts, namespaces, self.expires, self.oauth)


class Secret(Struct, frozen=True):
    """One credential. Its value is never shown."""

    name: str
    value: str
    binding: Binding
    tenant: str = ""
    """The tenant whose calls use it; empty for all that have none of their own."""
    set_time: datetime | None = None

    def __repr__(self) -> str:
        return f"Secret({self.name!r})"

    def is_expired(self, now: datetime) -> bool:
        """Return whether its time is over."""
        return self.binding.expires is not None and self.binding.expires <= now


def _is_printable(text: str) -> bool:
    return len(text) <= _MAX_TEXT and text.isascii() and (text.isprintable() or not text)


def secret_name(reference: str) -> str | None:
    """Return the name in `secret://name`; None for any other text."""
    name = reference.removeprefix(SCHEME)
    return name if reference.startswith(SCHEME) and _NAME.fullmatch(name) else None


def check_name(name: str) -> str:
    """Return a valid name. Raises SecretFormError."""
    if not _NAME.fullmatch(name):
        raise SecretFormError("a name has lower case letters, digits, dashes and underscores, and begins with a letter")
    return name


def check_value(text: str) -> str:
    """Return a value that a header can carry, without the line end of a file. Raises SecretFormError."""
    value = text.removesuffix("\n").removesuffix("\r")
    if not 1 <= len(value) <= MAX_VALUE or not value.isascii() or not value.isprintable():
        raise SecretFormError(f"a value has 1 to {MAX_VALUE} printable ASCII characters")
    return value


def parse_binding(document: bytes) -> Binding:
    """Parse the JSON of a binding. Raises SecretFormError."""
    try:
        return msgspec.json.decode(document, type=Binding).check()
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SecretFormError("the binding is not JSON with hosts, namespaces and optionally expires") from error


def parse_expiry(text: str) -> datetime:
    """Parse an RFC 3339 time; a date alone ends at its midnight in UTC. Raises SecretFormError."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise SecretFormError("is not a time such as 2027-01-31 or 2027-01-31T12:00:00Z") from None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def describe(secrets: Iterable[Secret]) -> list[dict[str, Any]]:
    """Return all but the values."""
    return [
        {
            "name": secret.name,
            "tenant": secret.tenant,
            "hosts": list(secret.binding.hosts),
            "namespaces": list(secret.binding.namespaces),
            "expires": secret.binding.expires.isoformat() if secret.binding.expires else None,
            "set_time": secret.set_time.isoformat() if secret.set_time else None,
            "oauth": msgspec.to_builtins(secret.binding.oauth),
        }
        for secret in secrets
    ]
