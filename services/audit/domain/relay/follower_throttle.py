"""Throttles followers of the log: 5 % of a core near the end of the log, up to 50 % when far behind."""

from __future__ import annotations

# Near the end of the log a follower rests 19 times as long as it works, so that appends are not delayed.
REST_RATIO = 19
# The ratio drops by one for every ten seconds of lag, down to 1 at three minutes. Under sustained load the lag stays
# bounded.
SECONDS_PER_STEP = 10.0


def rest_seconds(worked: float, behind: float) -> float:
    """Return how long to rest after `worked` seconds of work with a lag of `behind` seconds."""
    return worked * max(1.0, REST_RATIO - behind / SECONDS_PER_STEP)
