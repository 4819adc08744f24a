"""What a hop passes on: the caller's token, its trace, and less time than it was given."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from libs.common.call_context import Call, enter, margin
from libs.common.errors import MeshError, Reason
from libs.common.rpc.client import channel_to, outgoing
from libs.common.runtime.settings import Address
from libs.common.trace_context import continue_trace


def serve(**changes: object) -> Call:
    call = Call("/a/B", continue_trace(None), **changes)  # type: ignore[arg-type]
    enter(call)
    return call


async def test_token_trace_and_request_id_go_along() -> None:
    call = serve(token="secret", request_id="r-1")
    _, metadata = outgoing(None, [("x-more", "1")])
    sent = dict(metadata)
    assert sent["x-more"] == "1"
    assert sent["authorization"] == "Bearer secret"
    assert sent["traceparent"] == call.trace.traceparent
    assert sent["x-request-id"] == "r-1"


@pytest.mark.parametrize(("given", "asked", "most"), [(1.0, None, 0.9), (1.0, 0.2, 0.2), (0.05, 10.0, 0.045)])
async def test_the_deadline_shrinks_by_a_margin(given: float, asked: float | None, most: float) -> None:
    serve(deadline=time.monotonic() + given)
    timeout, _ = outgoing(asked, ())
    assert timeout is not None
    assert 0 < timeout <= most


async def test_without_a_deadline_the_asked_one_holds() -> None:
    serve()
    assert outgoing(3.0, ())[0] == 3.0
    assert outgoing(None, ())[0] is None


async def test_what_cannot_end_in_time_is_not_begun() -> None:
    serve(deadline=time.monotonic() - 1)
    with pytest.raises(MeshError) as caught:
        outgoing(None, ())
    assert caught.value.reason is Reason.DEADLINE_EXCEEDED


def test_the_margin_is_a_tenth_within_bounds() -> None:
    assert [margin(r) for r in (0.001, 0.1, 10.0)] == [0.001, 0.010000000000000002, 0.1]


async def test_peers_are_reached_without_the_proxy_that_is_for_the_outside(
    pki: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    identity = pki.of("authz")
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    pair = (identity.key.read_bytes(), identity.cert.read_bytes())
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([pair], pki.ca.read_bytes(), require_client_auth=True)
    )
    await server.start()
    caller = pki.of("executor")
    credentials = SimpleNamespace(tls_cert=caller.cert, tls_key=caller.key, tls_ca=pki.ca)
    async with channel_to("authz", Address("127.0.0.1", port), credentials) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/nobody/Here")(b"", timeout=10)  # type: ignore[arg-type]
    await server.stop(None)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
