"""The cookies of the console: how they are named, set, read and removed."""

from __future__ import annotations

from libs.common.errors import MeshError, Reason
from services.gateway.console.request import ConsoleRequest
from services.gateway.transport.asgi_types import Header

SESSION, LOGIN = "toolmesh-console", "toolmesh-login"
_MAX_HEADER_BYTES = 32 * 1024


def read_cookie(request: ConsoleRequest, name: str) -> str:
    """Return the value of a cookie; empty if it was not sent. A cookie that was sent twice raises INVALID_REQUEST."""
    values = [
        value.strip()
        for key, _, value in (pair.partition("=") for pair in request.header(b"cookie")[:_MAX_HEADER_BYTES].split(";"))
        if key.strip() == _full_name(name, secure=request.secure)
    ]
    if len(values) > 1:
        raise MeshError(Reason.INVALID_REQUEST, message="a cookie of the console was sent twice; remove the cookies")
    return values[0] if values else ""


def set_cookie(request: ConsoleRequest, name: str, value: str, *, seconds: int, same_site: str = "Strict") -> Header:
    """Return the header that sets a cookie, which no script can read. Under TLS it is bound to this very host."""
    full_name = _full_name(name, secure=request.secure)
    secure = "; Secure" if request.secure else ""
    cookie = f"{full_name}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite={same_site}{secure}"
    return b"set-cookie", cookie.encode("ascii")


def remove_cookie(request: ConsoleRequest, name: str) -> Header:
    """Return the header that removes a cookie."""
    return set_cookie(request, name, "", seconds=0)


def _full_name(name: str, *, secure: bool) -> str:
    return f"__Host-{name}" if secure else name
