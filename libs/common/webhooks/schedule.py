"""Decides when a webhook that was not delivered is sent again. Pure."""

from __future__ import annotations

import random

# Between one try and the next; the last of eight tries is at most 21 hours after the first.
RETRY_SECONDS = (5.0, 60.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0)
MAX_TRIES = len(RETRY_SECONDS) + 1
_JITTER = 0.2


def next_delay(tries: int) -> float | None:
    """Return the seconds until the next try after `tries` of them; None where there is none.

    Each delay is up to a fifth longer by chance, so that the deliveries of an outage do not come back together.
    """
    if tries >= MAX_TRIES:
        return None
    return RETRY_SECONDS[max(tries, 1) - 1] * random.uniform(1.0, 1.0 + _JITTER)  # noqa: S311  (spreads load)
