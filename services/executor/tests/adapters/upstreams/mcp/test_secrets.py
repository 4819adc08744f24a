"""Credentials of MCP servers: where they go, where they do not, and a rotated one at the next call."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from toolmesh.registry.v1 import upstream_pb2 as upb

from libs.common.errors import Reason
from services.executor.adapters.upstreams.mcp.secrets import ServerSecrets
from services.executor.domain.scheduling.heavy_work import Principal
from services.executor.domain.tool import Tool
from services.executor.tests.upstreams import Upstreams, served
from tests.harness.evidence.planted import process_list

VARIABLE = upb.EnvironmentSecret(variable="TOKEN", secret="secret://token")
HEADER = upb.MetadataSecret(key="authorization", secret="secret://token", prefix="Bearer ")
FIRST, SECOND = 'first-"quoted"-value', "second-value"


@pytest.fixture
async def upstreams(tmp_path: Path) -> AsyncIterator[Upstreams]:
    made = Upstreams(tmp_path)
    made.offer("digest", "look", "fail")
    yield made
    await made.close()


async def digest_of(upstreams: Upstreams) -> str:
    """Return what the server makes of its variable."""
    return str((await upstreams.value(upstreams.tool("digest"), text="TOKEN"))["content"][0]["text"])


async def test_a_confined_server_has_the_secret_of_now_and_no_process_list_shows_it(upstreams: Upstreams) -> None:
    upstreams.add_confined(secrets=[VARIABLE])
    assert (await upstreams.failure(upstreams.tool("digest"), text="TOKEN")).reason is Reason.CREDENTIAL_NOT_FOUND
    assert len(upstreams.pool) == 0
    for value in (FIRST, SECOND):
        upstreams.keep_secret("token", value)
        assert await digest_of(upstreams) == sha256(value.encode()).hexdigest()
        # The processes of servers are there, and are kept.
        lines = process_list()
        assert str(upstreams.tools).encode() in lines
        assert value.encode() not in lines


async def test_what_a_confined_server_repeats_of_its_secret_is_removed(upstreams: Upstreams) -> None:
    upstreams.keep_secret("token", FIRST)
    upstreams.add_confined(secrets=[VARIABLE])
    text = (await upstreams.value(upstreams.tool("look")))["content"][0]["text"]
    assert json.loads(text)["environment"]["TOKEN"] == "[redacted]"


@pytest.mark.parametrize(
    ("binding", "hosts"),
    [
        ({"namespaces": ["other"]}, []),
        ({"hosts": ["api.example.com"]}, ["api.example.com", "evil.example.com"]),
        ({"hosts": ["api.example.com"]}, ["*.example.com"]),
    ],
)
async def test_a_secret_enters_no_server_that_it_is_not_bound_to(
    upstreams: Upstreams, binding: dict[str, Any], hosts: list[str]
) -> None:
    upstreams.keep_secret("token", FIRST, **binding)
    upstreams.add_confined(secrets=[VARIABLE], allowed_hosts=hosts)
    assert (await upstreams.failure(upstreams.tool("digest"), text="TOKEN")).reason is Reason.CREDENTIAL_NOT_FOUND
    assert len(upstreams.pool) == 0


async def test_a_tenant_has_its_own_secret_in_a_process_of_its_own(upstreams: Upstreams) -> None:
    upstreams.keep_secret("token", FIRST)
    own = upstreams.secrets / "tenants" / "acme"
    own.mkdir(parents=True)
    for name in ("token", "token.json"):
        (own / name).write_bytes((upstreams.secrets / name).read_bytes())
    (own / "token").write_text(SECOND)
    upstreams.add_confined(secrets=[VARIABLE])
    for tenant, value in (("acme", SECOND), ("other", FIRST)):
        answer = await upstreams.value(upstreams.tool("digest"), text="TOKEN", tenant=tenant)
        assert answer["content"][0]["text"] == sha256(value.encode()).hexdigest()


class Guarded:
    """Serves those alone who know the token."""

    def __init__(self, token: str) -> None:
        self.token = token
        server = MCPServer("guarded", version="1.0")

        @server.tool()
        def repeat() -> str:
            """Tells with which token it was called."""
            return f"you said {self.token}"

        self._application = server.streamable_http_app()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and dict(scope["headers"]).get(b"authorization") != f"Bearer {self.token}".encode():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"who are you?"})
            return
        await self._application(scope, receive, send)


async def guarded_tool(upstreams: Upstreams, url: str) -> Tool:
    """Return the tool `repeat` under the definition that the server has."""
    upstreams.add_remote(url, secrets=[HEADER])
    config = upstreams._directory.get("fix")
    assert config is not None
    owner = Principal("", "test")
    server = upstreams._servers.connect(config, owner)
    server.transport.secrets = await upstreams._servers.read_secrets(config, owner)
    await server.open()
    accepted = server.session.definitions["repeat"].digest
    await server.close()
    return upstreams.tool("repeat", accepted)


async def test_every_request_to_a_remote_server_carries_the_secret_of_now(upstreams: Upstreams) -> None:
    guard = Guarded(FIRST)
    upstreams.keep_secret("token", FIRST)
    async with served(guard) as url:
        tool = await guarded_tool(upstreams, url)
        assert await upstreams.value(tool) == {"result": "you said [redacted]"}
        # The service replaced the token before the store did, within the session.
        guard.token = SECOND
        assert (await upstreams.failure(tool)).reason is Reason.CREDENTIAL_EXPIRED
        upstreams.keep_secret("token", SECOND)
        assert await upstreams.value(tool) == {"result": "you said [redacted]"}
        upstreams.keep_secret("token", SECOND, hosts=["mcp.example.com"])
        assert (await upstreams.failure(tool)).reason is Reason.CREDENTIAL_NOT_FOUND


def test_secrets_show_no_value_and_differ_by_it() -> None:
    first, second = (ServerSecrets({"TOKEN": value}, (value,), ("token",)) for value in (FIRST, SECOND))
    assert FIRST not in repr(first)
    assert first.fingerprint != second.fingerprint
    assert first.fingerprint == ServerSecrets({"TOKEN": FIRST}, (FIRST,), ("token",)).fingerprint
    sent = json.dumps({"plain": SECOND, "escaped": FIRST}).encode()
    assert json.loads(first.remove_from(second.remove_from(sent))) == {
        "plain": "[redacted]",
        "escaped": "[redacted]",
    }
