"""How much of the machine those who follow the log may have: little while they are close, more the further they fall behind."""

from __future__ import annotations

# Whoever is close to the end of the log rests so many times as long as it works: what it does can wait, and whoever appends cannot.
REST = 19
# For every so many seconds behind, a rest is shorter by once the time worked. From three minutes behind on it works half of the time: under
# load without end it stays behind, and does not fall back further and further.
SECONDS_A_STEP = 10.0


def rest_seconds(worked: float, behind: float) -> float:
    """Return how long to rest after so many seconds of work, being so many seconds behind the log."""
    return worked * max(1.0, REST - behind / SECONDS_A_STEP)
