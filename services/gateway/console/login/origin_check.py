"""Refuses forms that another site sends (cross-site request forgery)."""

from __future__ import annotations

import hmac

from libs.common.auth.origins import origin_of
from libs.common.errors import MeshError, Reason
from services.gateway.console.request import ConsoleRequest


def check_origin(request: ConsoleRequest) -> None:
    """Return if the console's own page sends the request, by what the browser says. Raises PERMISSION_DENIED."""
    site, origin = request.header(b"sec-fetch-site"), request.header(b"origin")
    if site not in ("", "same-origin") or not origin or not _same(origin, request.address):
        raise _refused()


def check_form_token(request: ConsoleRequest) -> None:
    """Return if the form repeats the token of the session. Raises PERMISSION_DENIED."""
    sent, expected = request.form.get("form_token", ""), request.required_session().form_token
    if not hmac.compare_digest(sent.encode(), expected.encode()):
        raise _refused()


def _same(origin: str, address: str) -> bool:
    try:
        return origin_of(origin) == origin_of(address)
    except ValueError:
        return False


def _refused() -> MeshError:
    message = "the form was not sent by a page of this console; open the page again and send it from there"
    return MeshError(Reason.PERMISSION_DENIED, message=message)
