"""How long services ask to be left alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from services.executor.adapters.runners.http.retry_after import parse_rate_limit, parse_retry_after

NOW = datetime(2026, 11, 18, 12, 0, 0, tzinfo=UTC)
EPOCH = int(NOW.timestamp())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        ("Wed, 18 Nov 2026 12:01:00 GMT", 60.0),
        ("Wed, 18 Nov 2026 11:00:00 GMT", 0.0),
        ("9" * 400, 86_400.0),
        ("soon", None),
        ("-1", None),
        ("", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(text: str, seconds: float | None) -> None:
    assert parse_retry_after(text, NOW) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"ratelimit": '"default";r=0;t=30'}, 30.0),
        ({"ratelimit": '"default";t=30;r=0;pk=:x:'}, 30.0),
        ({"ratelimit": '"default";r=5;t=30'}, None),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "12"}, 12.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(EPOCH + 45)}, 45.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(EPOCH - 45)}, None),
        ({"x-ratelimit-remaining": "7", "x-ratelimit-reset": "45"}, None),
        ({"x-ratelimit-remaining": "0"}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1e20"}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9" * 300}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "999999999999"}, 3600.0),
        ({}, None),
    ],
)
def test_a_service_without_anything_left_says_until_when(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_rate_limit(headers, NOW) == seconds
