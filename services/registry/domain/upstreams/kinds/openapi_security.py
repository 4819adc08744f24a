"""Chooses the credentials of an operation among those that the operator named. Pure."""

from __future__ import annotations

import re
from typing import Any

from libs.common.errors import Violation
from services.registry.domain.upstreams.upstream import OpenApiEndpoint

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_HTTP_PREFIXES = {"bearer": "Bearer ", "basic": "Basic "}
# Their tokens are sent as bearer tokens; the operator obtains and rotates them.
_TOKEN_TYPES = frozenset({"oauth2", "openIdConnect"})


def choose_secrets(
    operation: dict[str, Any], endpoint: OpenApiEndpoint, notes: list[str], problems: list[Violation]
) -> list[dict[str, str]]:
    """Return the secrets of the first alternative that the named ones satisfy; a problem says what is missing."""
    declared = operation.get("security")
    alternatives = [each for each in (declared if isinstance(declared, list) else ()) if isinstance(each, list)]
    secrets = dict(endpoint.secrets)
    for alternative in alternatives:
        uses = [_use(scheme, secrets) for scheme in alternative if isinstance(scheme, dict)]
        complete = [use for use in uses if use is not None]
        if complete and len(complete) == len(uses):
            return complete
    if not alternatives or [] in alternatives:
        return []
    missing = [str(scheme.get("id", "")) for scheme in alternatives[0] if isinstance(scheme, dict)]
    message = f"needs a credential; connect with --secret {missing[0]}=NAME of a secret"
    if any(_placed(scheme) is None for scheme in alternatives[0] if isinstance(scheme, dict)):
        message = f"needs the security scheme {', '.join(missing)}, which the mesh cannot send"
    problems.append(Violation("security", "openapi.security", message))
    return []


def _use(scheme: dict[str, Any], secrets: dict[str, str]) -> dict[str, str] | None:
    placed, secret = _placed(scheme), secrets.get(str(scheme.get("id", "")))
    return None if placed is None or secret is None else {"secret": secret, **placed}


def _placed(scheme: dict[str, Any]) -> dict[str, str] | None:
    """Return where the credential of a scheme travels; None if it cannot."""
    kind = scheme.get("type")
    if kind == "apiKey" and scheme.get("in") in ("header", "query"):
        name = str(scheme.get("name", ""))
        return {"place": str(scheme["in"]), "name": name} if _NAME.fullmatch(name) else None
    if kind in _TOKEN_TYPES:
        return {"place": "header", "name": "Authorization", "prefix": "Bearer "}
    prefix = _HTTP_PREFIXES.get(str(scheme.get("scheme", "")).lower()) if kind == "http" else None
    return None if prefix is None else {"place": "header", "name": "Authorization", "prefix": prefix}
