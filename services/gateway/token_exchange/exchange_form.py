"""Reads the form of a token exchange (RFC 8693, section 2.1). Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from libs.common.auth.origins import origin_of
from services.gateway.token_exchange.oauth_errors import OAuthError

FORM_TYPE = "application/x-www-form-urlencoded"
GRANT_TYPE = "urn:ietf:params:oauth:grant-type:token-exchange"
_TYPE = "urn:ietf:params:oauth:token-type:"
ACCESS_TOKEN = _TYPE + "access_token"
# An access token of the mesh is a JWT.
_ISSUED_TYPES = frozenset({"", ACCESS_TOKEN, _TYPE + "jwt"})
_SUBJECT_TYPES = frozenset({ACCESS_TOKEN, _TYPE + "jwt", _TYPE + "id_token"})
_MAX_FIELDS, _MAX_SCOPES, _MAX_SUBJECT_TOKEN = 32, 64, 16_384
_SCOPE = re.compile(r"[a-z][a-z0-9_.:-]{0,127}")
# Only these may be repeated.
_REPEATABLE = frozenset({"audience", "resource"})


@dataclass(frozen=True, slots=True)
class ExchangeForm:
    """A request for a token in exchange for another one."""

    subject_token: str
    scopes: tuple[str, ...] = ()
    """The scopes that are asked for; empty for all that the issuer's users are granted."""


def read_exchange_form(body: bytes, content_type: str, audience: str, origins: Collection[str]) -> ExchangeForm:
    """Return the request of a body. `audience` and `origins` name this mesh. Raises OAuthError."""
    if content_type.partition(";")[0].strip().lower() != FORM_TYPE:
        raise OAuthError("invalid_request", f"the body must be {FORM_TYPE}")
    fields = _fields(body)
    _check_types(fields)
    _check_target(fields, audience, origins)
    subject_token = _one(fields, "subject_token")
    if len(subject_token) > _MAX_SUBJECT_TOKEN:
        raise OAuthError("invalid_request", f"subject_token has more than {_MAX_SUBJECT_TOKEN} characters")
    scopes = tuple(dict.fromkeys(_one(fields, "scope").split()))
    if len(scopes) > _MAX_SCOPES or not all(map(_SCOPE.fullmatch, scopes)):
        raise OAuthError("invalid_scope", f"a scope is malformed, or there are more than {_MAX_SCOPES}")
    return ExchangeForm(subject_token, scopes)


def _fields(body: bytes) -> Mapping[str, Sequence[str]]:
    """Return the values of each field. One without a value counts as left out (RFC 6749, section 3.2)."""
    try:
        pairs = parse_qsl(body.decode("ascii"), errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise OAuthError("invalid_request", "the form is malformed, or has too many fields") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    repeated = sorted(name for name, values in fields.items() if len(values) > 1 and name not in _REPEATABLE)
    if repeated:
        raise OAuthError("invalid_request", "a parameter is there more than once")
    return fields


def _check_types(fields: Mapping[str, Sequence[str]]) -> None:
    grant_type = _one(fields, "grant_type")
    if not grant_type:
        raise OAuthError("invalid_request", "grant_type is missing")
    if grant_type != GRANT_TYPE:
        raise OAuthError("unsupported_grant_type", f"the only grant type is {GRANT_TYPE}")
    for name in ("subject_token", "subject_token_type"):
        if not _one(fields, name):
            raise OAuthError("invalid_request", f"{name} is missing")
    if _one(fields, "subject_token_type") not in _SUBJECT_TYPES:
        raise OAuthError("invalid_request", "the subject token must be an access token, a JWT or an ID token")
    if _one(fields, "requested_token_type") not in _ISSUED_TYPES:
        raise OAuthError("invalid_request", "only access tokens are issued")
    if _one(fields, "actor_token") or _one(fields, "actor_token_type"):
        raise OAuthError("invalid_request", "an actor token is not supported: delegate the new token instead")


def _check_target(fields: Mapping[str, Sequence[str]], audience: str, origins: Collection[str]) -> None:
    """Refuse a request for a token that is to be used elsewhere."""
    if any(asked != audience for asked in fields.get("audience", ())):
        raise OAuthError("invalid_target", "tokens of this mesh are for this mesh alone")
    for resource in fields.get("resource", ()):
        try:
            here = origin_of(resource) in origins and "#" not in resource
        except ValueError:
            here = False
        if not here:
            raise OAuthError("invalid_target", "the resource is not of this mesh")


def _one(fields: Mapping[str, Sequence[str]], name: str) -> str:
    return fields.get(name, ("",))[0]
