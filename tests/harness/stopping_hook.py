"""A hook of a deployment that stops every call it is asked about. The executor loads it as a plugin."""

from __future__ import annotations

from typing import Any


async def stop(event: dict[str, Any]) -> dict[str, Any]:
    """Say that the call must not run."""
    return {"stop": "not on my watch"}
