"""The official MCP client against a mesh: lists the tools that the token may use, and calls one.

    TOOLMESH_URL=http://127.0.0.1:8080 TOOLMESH_TOKEN=... python examples/mcp_client.py

It needs the package `mcp`. The client speaks the newest revision that both sides know.
"""

from __future__ import annotations

import asyncio
import os

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


async def main() -> None:
    """List and call."""
    headers = {"authorization": f"Bearer {os.environ['TOOLMESH_TOKEN']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{os.environ['TOOLMESH_URL']}/mcp", http_client=http)
        async with Client(transport) as client:
            for tool in (await client.list_tools()).tools:
                print(tool.name, "-", tool.title)
            result = await client.call_tool("core__echo", {"text": "hello"})
            print(result.structured_content)


if __name__ == "__main__":
    asyncio.run(main())
