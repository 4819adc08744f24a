"""Hooks of a deployment that stop or reject every call they are asked about. The executor loads them as plugins."""

from __future__ import annotations

from typing import Any


async def stop(event: dict[str, Any]) -> dict[str, Any]:
    """Say that the call must not run."""
    return {"stop": "not on my watch"}


async def reject(event: dict[str, Any]) -> dict[str, Any]:
    """Say no for the approvers."""
    return {"decision": "deny", "reason": "nothing is approved before the release"}
