"""Computes the fingerprint that ties a call to its preview."""

from __future__ import annotations

from typing import Any

from libs.common.json.canonical import canonical, digest
from services.executor.domain.model import Caller
from services.executor.domain.tool import Tool


def call_fingerprint(caller: Caller, tool: Tool, arguments: dict[str, Any]) -> str:
    """Return the fingerprint of the caller, the tool version and the arguments that policy judged."""
    session = caller.session_id or caller.token_id
    return canonical([caller.tenant, caller.subject, session, tool.name, tool.digest, digest(arguments)]).decode()
