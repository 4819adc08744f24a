"""Says what a refused opening request of a WebSocket means for the call. Nothing but the request was sent then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from libs.common.errors import MeshError
from services.executor.adapters.runners.http.retry_after import parse_retry_after
from services.executor.domain import errors

if TYPE_CHECKING:
    from websockets.http11 import Response

_UNAUTHORIZED, _RATE_LIMITED, _SERVER_ERRORS = 401, 429, 500


def error_of_status(origin: str, response: Response, secrets: Sequence[str]) -> MeshError:
    """Return the error of an opening request that got a status."""
    status = response.status_code
    delay = parse_retry_after(response.headers.get("Retry-After", ""), datetime.now(UTC))
    if status == _RATE_LIMITED:
        return errors.external_rate_limited(origin, delay)
    if status == _UNAUTHORIZED and secrets:
        return errors.credential_refused(secrets[0], status)
    if status < _SERVER_ERRORS:
        return errors.external_refused(origin, status)
    error = errors.external_unavailable(origin, f"http_{status}", "none")
    error.retry_after = delay
    return error
