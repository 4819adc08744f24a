"""Waits for a condition of the cluster."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 600.0


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Asks again and again until the condition holds, and fails if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.5)
