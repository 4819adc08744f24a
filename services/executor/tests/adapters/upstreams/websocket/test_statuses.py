"""What refused opening requests mean."""

from __future__ import annotations

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Response

from libs.common.errors import Reason
from services.executor.adapters.upstreams.websocket.statuses import error_of_status


@pytest.mark.parametrize(
    ("status", "secrets", "reason"),
    [
        (401, ["key"], Reason.CREDENTIAL_EXPIRED),
        (401, [], Reason.EXECUTION_FAILED),
        (302, ["key"], Reason.EXECUTION_FAILED),
        (429, [], Reason.EXTERNAL_RATE_LIMITED),
        (500, [], Reason.EXTERNAL_UNAVAILABLE),
    ],
)
def test_each_status_has_its_reason(status: int, secrets: list[str], reason: Reason) -> None:
    error = error_of_status("ws://a:1", Response(status, "No", Headers({"Retry-After": "3"})), secrets)
    assert error.reason is reason
    assert error.retry_after == (3.0 if status in (429, 500) else None)
