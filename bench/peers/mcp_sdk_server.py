"""The echo as a tool of the MCP Python SDK's own server; run in the environment of that peer.

As its documents advise for production: stateless, with plain JSON answers; uvloop and httptools under uvicorn.
"""

from __future__ import annotations

import sys

import uvicorn
from mcp.server.mcpserver import MCPServer  # type: ignore[import-not-found]

server = MCPServer("echo", log_level="ERROR")


@server.tool()  # type: ignore[untyped-decorator]
async def echo(text: str) -> str:
    """Return the text."""
    return text


if __name__ == "__main__":
    app = server.streamable_http_app(stateless_http=True, json_response=True)
    port = int(sys.argv[1])
    uvicorn.run(app, port=port, loop="uvloop", http="httptools", access_log=False, log_level="error")
