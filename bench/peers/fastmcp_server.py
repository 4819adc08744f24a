"""The echo as a tool of a FastMCP server; run in the environment of that peer.

As its documents advise for production: stateless, with plain JSON answers; uvloop and httptools under uvicorn.
"""

from __future__ import annotations

import sys

import uvicorn
from fastmcp import FastMCP  # type: ignore[import-not-found]

server = FastMCP("echo")


@server.tool  # type: ignore[untyped-decorator]
async def echo(text: str) -> str:
    """Return the text."""
    return text


if __name__ == "__main__":
    app = server.http_app(stateless_http=True, json_response=True)
    port = int(sys.argv[1])
    uvicorn.run(app, port=port, loop="uvloop", http="httptools", access_log=False, log_level="error")
