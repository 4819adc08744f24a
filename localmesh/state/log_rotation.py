"""Keeping the logs of a mesh that runs for weeks as short as those of one that is started every day."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

from localmesh.state.files import rotate_in_use

LOOK_SECONDS = 10.0


async def keep_short(logs: Sequence[Path]) -> None:
    """Moves each log aside whenever it has grown past the limit, until it is cancelled."""
    while True:
        for log in logs:
            # A disk that is full now may not be at the next look.
            with contextlib.suppress(OSError):
                rotate_in_use(log)
        await asyncio.sleep(LOOK_SECONDS)
