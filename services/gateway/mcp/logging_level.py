"""`logging/setLevel`: which log lines of its calls the client of a session gets."""

from __future__ import annotations

import dataclasses
from typing import Any

from services.gateway.mcp.context import McpContext, Result
from services.gateway.mcp.ports import Sessions


class SetLevel:
    """Keeps the level with the session, for every replica."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def set_level(self, params: dict[str, Any], context: McpContext) -> Result:
        """Set the least important level."""
        client = dataclasses.replace(context.client, log_level=params["level"])
        await self._sessions.update(context.caller.owner, context.session, client)
        return {}
