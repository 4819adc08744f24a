"""What makes a call the very call that was previewed."""

from __future__ import annotations

from typing import Any

from libs.common.json.canonical import canonical, digest
from services.executor.domain.model import Caller
from services.executor.domain.tool import Tool


def call_fingerprint(caller: Caller, tool: Tool, arguments: dict[str, Any]) -> str:
    """Return one text for the caller, the content of the tool's version and the arguments that policy judged."""
    session = caller.session_id or caller.token_id
    return canonical([caller.tenant, caller.subject, session, tool.name, tool.digest, digest(arguments)]).decode()
