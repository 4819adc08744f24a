"""Sessions of the console: the mesh token of a person, sealed in a cookie. The gateway stores none of them."""

from __future__ import annotations

import secrets
import time
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field, replace
from typing import Any

from libs.common.auth.jose import MAX_TOKEN_BYTES, header_of, payload_of
from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump, parse_object
from libs.common.sealing import Seal, SealError
from services.gateway.transport.request.dpop_check import holder_of

# A session ends with its token, and at the latest after this time.
SESSION_SECONDS = 3600
# Browsers ignore a cookie above 4096 bytes, its name and attributes included.
MAX_COOKIE_BYTES = 3900
_MAX_PLAIN_BYTES = 2 * MAX_TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class Session:
    """A person who logged in."""

    token: str = field(repr=False)
    subject: str
    tenant: str
    scopes: frozenset[str]
    form_token: str = field(repr=False)
    """Every form of the session repeats it, so that another site cannot make up a form."""
    expires: int


def new_session(token: str, now: float | None = None) -> Session:
    """Return the session of a mesh token, whose claims the services verify at every call.

    Raises TOKEN_MALFORMED, and TOKEN_PROOF_INVALID for a token that is bound to a key: a page cannot prove it.
    """
    header_of(token, max_bytes=MAX_TOKEN_BYTES)
    claims = payload_of(token)
    if holder_of(token).confirmation:
        message = "a token that is bound to a key cannot be used in the console; use one that is not bound"
        raise MeshError(Reason.TOKEN_PROOF_INVALID, message=message)
    expires = claims.get("exp")
    if not isinstance(expires, int | float):
        raise MeshError(Reason.TOKEN_MALFORMED)
    moment = time.time() if now is None else now
    subject, tenant, scope = (claims.get(name) for name in ("sub", "tenant", "scope"))
    return Session(
        token=token,
        subject=subject if isinstance(subject, str) else "",
        tenant=tenant if isinstance(tenant, str) else "",
        scopes=frozenset(scope.split() if isinstance(scope, str) else ()),
        form_token=secrets.token_urlsafe(24),
        expires=int(min(expires, moment + SESSION_SECONDS)),
    )


class SealedCookies:
    """Seals records for cookies, and opens them again until they expire."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def seal(self, kind: str, record: dict[str, Any]) -> str:
        """Return a record, which must have `expires`, as the value of a cookie of this kind."""
        sealed = self._seal.seal(zlib.compress(dump(record), 9), f"console {kind}")
        return urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, kind: str, cookie: str) -> dict[str, Any] | None:
        """Return the record of a cookie; None if it is not one of this kind, or expired."""
        try:
            sealed = urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4))
            inflated = zlib.decompressobj().decompress(self._seal.open(sealed, f"console {kind}"), _MAX_PLAIN_BYTES)
            record = parse_object(inflated, max_bytes=_MAX_PLAIN_BYTES)
        except (ValueError, SealError, zlib.error, MeshError):
            return None
        return record if record["expires"] > time.time() else None


def seal_session(cookies: SealedCookies, session: Session) -> str:
    """Return the cookie of a session. Raises PAYLOAD_TOO_LARGE for a token that does not fit into one."""
    record = {"token": session.token, "form_token": session.form_token, "expires": session.expires}
    cookie = cookies.seal("session", record)
    if len(cookie) > MAX_COOKIE_BYTES:
        message = "the token is too long for the console; use one with fewer grants"
        raise MeshError(Reason.PAYLOAD_TOO_LARGE, message=message)
    return cookie


def open_session(cookies: SealedCookies, cookie: str) -> Session | None:
    """Return the session of a cookie; None if there is none, or it has ended."""
    record = cookies.open("session", cookie) if cookie else None
    if record is None:
        return None
    return replace(new_session(record["token"]), form_token=record["form_token"], expires=record["expires"])
