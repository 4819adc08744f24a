"""Ends the calls of Envoy before its pod ends: SIGTERM alone would cut those under way.

The pod's preStop hook runs it inside of Envoy's container.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from localmesh.parts.envoy import begin_drain, wait_until_idle

ADMIN = Path("/run/envoy/admin.sock")
# Connections end with their next response within the drain time of Envoy's command line, and balancers send new ones
# for as long as they do not know of the end.
CLOSING_SECONDS = 12.0
# Calls that take longer are cut when the pod's grace period ends.
IDLE_SECONDS = 20.0


async def drain(admin: Path, closing_seconds: float = CLOSING_SECONDS, idle_seconds: float = IDLE_SECONDS) -> None:
    """Return when connections were closed and no call is under way. An Envoy that has ended has none."""
    with contextlib.suppress(OSError):
        await begin_drain(admin)
        await asyncio.sleep(closing_seconds)
        await wait_until_idle(admin, idle_seconds)


if __name__ == "__main__":
    asyncio.run(drain(ADMIN))
