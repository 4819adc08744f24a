"""Checks the callback of a request before it is accepted."""

from __future__ import annotations

from libs.common.errors import MeshError, Reason, Violation
from libs.common.webhooks.destination import ForbiddenUrlError, WebhookDestinations
from libs.common.webhooks.signature import signing_key
from services.executor.domain.jobs.job import Callback

_MESSAGES = {
    "not_a_url": "is not an absolute HTTPS URL of plain characters",
    "not_https": "is not an HTTPS URL",
    "credentials_or_fragment": "has a user name, a password or a fragment",
    "address_not_public": "is an address that is not public",
}


class CallbackRules:
    """Refuses callbacks that would never be delivered."""

    def __init__(self, destinations: WebhookDestinations) -> None:
        self._destinations = destinations

    def check(self, callback: Callback) -> Callback:
        """Return the callback. Raises INVALID_REQUEST, without the secret."""
        violations = []
        try:
            self._destinations.parse(callback.url)
        except ForbiddenUrlError as error:
            violations.append(Violation("callback.url", f"callback.{error.rule}", _MESSAGES[error.rule]))
        try:
            signing_key(callback.secret)
        except ValueError:
            message = "is not whsec_ and 24 to 64 bytes in base64"
            violations.append(Violation("callback.secret", "callback.secret", message))
        if violations:
            raise MeshError(Reason.INVALID_REQUEST, violations=tuple(violations))
        return callback
