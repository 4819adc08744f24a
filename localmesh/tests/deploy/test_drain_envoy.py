"""The end of Envoy's pod: connections are closed first, then calls under way are awaited."""

from __future__ import annotations

import asyncio
from pathlib import Path

from localmesh.deploy.drain_envoy import drain


async def test_envoy_is_asked_to_close_and_calls_under_way_are_awaited(tmp_path: Path) -> None:
    active, asked = [2, 1, 0], list[str]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, path = (await reader.readline()).decode().split()[:2]
        asked.append(f"{method} {path.partition('?')[0]}")
        body = f"http.ingress.downstream_rq_active: {active.pop(0) if 'stats' in path else ''}\n"
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        writer.close()

    admin = tmp_path / "admin.sock"
    server = await asyncio.start_unix_server(answer, str(admin))
    async with server:
        await drain(admin, closing_seconds=0, idle_seconds=60)
    assert asked == ["POST /drain_listeners", *["GET /stats"] * 3]


async def test_an_envoy_that_has_ended_is_not_awaited(tmp_path: Path) -> None:
    await drain(tmp_path / "admin.sock", closing_seconds=3600)
