"""Waiting for what another process has done to arrive here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Return as soon as the condition holds; fail when it never does."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  (what is waited for happens behind a socket, where no event reaches)
            await asyncio.sleep(0.005)
