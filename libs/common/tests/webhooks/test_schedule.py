"""When webhooks are sent again."""

from __future__ import annotations

from libs.common.webhooks.schedule import MAX_TRIES, RETRY_SECONDS, next_delay


def test_eight_tries_within_a_day_and_then_none() -> None:
    delays = [delay for tries in range(1, MAX_TRIES) if (delay := next_delay(tries)) is not None]
    assert len(delays) + 1 == MAX_TRIES == 8
    assert all(low <= delay <= low * 1.2 for low, delay in zip(RETRY_SECONDS, delays, strict=True))
    assert sum(RETRY_SECONDS) * 1.2 < 24 * 3600
    assert next_delay(MAX_TRIES) is None
