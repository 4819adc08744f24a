"""Rotates the logs of a running mesh."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

from localmesh.state.files import rotate_in_use

LOOK_SECONDS = 10.0


async def rotate_logs(logs: Sequence[Path]) -> None:
    """Rotates each log that has grown past the limit, until it is canceled."""
    while True:
        for log in logs:
            # A disk that is full now may not be at the next look.
            with contextlib.suppress(OSError):
                rotate_in_use(log)
        await asyncio.sleep(LOOK_SECONDS)
