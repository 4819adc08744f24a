"""The egress proxy, used by a process in every sandbox."""

from __future__ import annotations

from contextlib import AsyncExitStack
from ipaddress import ip_network

import pytest

from services.executor.adapters.sandbox.egress.destination import HOST_NOT_ALLOWED
from services.executor.adapters.sandbox.egress.proxy import EgressProxy
from services.executor.adapters.sandbox.port import ExitKind, Sandbox
from services.executor.tests.origins import Names, Origin
from services.executor.tests.sandboxes import attempt, python
from services.executor.tests.sandboxes import sandbox as sandbox

ASK = """
import socket, sys
way = socket.socket(socket.AF_UNIX)
way.connect("/run/egress.sock")
way.sendall(f"GET http://{sys.argv[1]}/ HTTP/1.1\\r\\n\\r\\n".encode())
while part := way.recv(4096): sys.stdout.buffer.write(part)
"""


@pytest.fixture
async def origin(stack: AsyncExitStack) -> Origin:
    return await stack.enter_async_context(Origin().listening())


async def test_allowed_hosts_answer_and_others_do_not(sandbox: Sandbox, origin: Origin) -> None:
    proxy = EgressProxy([ip_network("127.0.0.1/32")], resolve=Names(["127.0.0.1"]))
    try:
        listener = await proxy.open(["api.example.com"], [origin.port])
        plan = python(ASK, f"api.example.com:{origin.port}", egress_socket=listener.path)
        tried = await attempt(sandbox, plan)
        assert (tried.output[-5:], tried.report.kind, listener.take_refusals()) == (b"hello", ExitKind.EXITED, ())
        tried = await attempt(sandbox, python(ASK, f"evil.example:{origin.port}", egress_socket=listener.path))
        assert b" 403 " in tried.output
        assert [refusal.reason for refusal in listener.take_refusals()] == [HOST_NOT_ALLOWED]
    finally:
        await proxy.close()


async def test_the_proxy_cannot_be_bypassed(sandbox: Sandbox, origin: Origin) -> None:
    proxy = EgressProxy()
    try:
        listener = await proxy.open(["api.example.com"], [origin.port])
        code = f"import socket; socket.create_connection(('127.0.0.1', {origin.port}), 5)"
        tried = await attempt(sandbox, python(code, egress_socket=listener.path))
        assert (tried.report.kind, tried.report.code, origin.connections) == (ExitKind.EXITED, 1, 0)
    finally:
        await proxy.close()


async def test_without_an_egress_socket_nothing_is_reachable(sandbox: Sandbox) -> None:
    tried = await attempt(sandbox, python(ASK, "api.example.com"))
    assert (tried.report.kind, tried.report.code) == (ExitKind.EXITED, 1)
