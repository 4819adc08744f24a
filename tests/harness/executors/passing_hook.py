"""A hook that lets every call pass, for meshes whose hooks are measured."""

from __future__ import annotations

from typing import Any


async def let_pass(event: dict[str, Any]) -> dict[str, Any]:
    """Answer that the call may go on as it is."""
    return {"decision": "continue"}
