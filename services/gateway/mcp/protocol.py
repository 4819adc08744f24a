"""Names and numbers of MCP that the gateway uses, and the errors of the protocol itself."""

from __future__ import annotations

from typing import Any

from mcp_types import SERVER_INFO_META_KEY
from mcp_types.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR

from libs.common.errors import MeshError, Reason

SESSION_VERSIONS = ("2025-06-18", "2025-11-25")
"""Revisions that begin with `initialize` and keep a session, oldest first."""
TASKS_VERSION = "2025-11-25"
"""The revision with tasks in its core. The next one has them as an extension."""
STATELESS_VERSIONS = ("2026-07-28",)
"""Revisions in which every request stands alone."""

SESSION_HEADER, VERSION_HEADER = b"mcp-session-id", b"mcp-protocol-version"
METHOD_HEADER, NAME_HEADER = b"mcp-method", b"mcp-name"
SUBSCRIPTION_META_KEY = "io.modelcontextprotocol/subscriptionId"
SERVER_INFO = {"name": "toolmesh", "title": "Toolmesh", "version": "1"}
SERVER_META = {SERVER_INFO_META_KEY: SERVER_INFO}

INVOCATION_META_KEY = "dev.toolmesh/invocation"
TRACE_META_KEY = "dev.toolmesh/trace"
REPLAYED_META_KEY = "dev.toolmesh/replayed"
STALE_META_KEY = "dev.toolmesh/staleSince"
WARNINGS_META_KEY = "dev.toolmesh/warnings"
DEPRECATION_META_KEY = "dev.toolmesh/deprecation"
LOOK_ALIKES_META_KEY = "dev.toolmesh/lookAlikes"
ERROR_META_KEY = "dev.toolmesh/error"
TOOL_META_KEY, DIGEST_META_KEY = "dev.toolmesh/tool", "dev.toolmesh/digest"

# The revision of 2026 gives numbers from -32020 on to the specification, and forbids -32002.
_OTHER_FAILURE = -32000
_OWN_CODES = frozenset(range(-32019, -31999)) - {-32002}
_HTTP_STATUS = {PARSE_ERROR: 400, INVALID_REQUEST: 400, INVALID_PARAMS: 400, METHOD_NOT_FOUND: 404}


class ProtocolError(Exception):
    """A failure that MCP itself defines, with its number, its data and its HTTP status."""

    def __init__(self, code: int, message: str, data: Any = None, *, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.message, self.data, self.status = code, message, data, status


def code_of(error: MeshError) -> int:
    """Return the JSON-RPC code of an error in MCP: that of its row where MCP leaves it free, else a general one."""
    if error.reason is Reason.TOOL_NOT_FOUND:
        return INVALID_PARAMS
    code: int = error.row.jsonrpc_code
    return code if code in _OWN_CODES or code <= INVALID_REQUEST else _OTHER_FAILURE


def stateless_status(code: int) -> int:
    """Return the HTTP status of a JSON-RPC error in a stateless revision."""
    return _HTTP_STATUS.get(code, 200)
