"""The upstream of a tool: found by its entry point, in the tool's own namespace, and of the runner's kinds."""

from __future__ import annotations

import json
from typing import Any

import grpc.aio
import pytest
from toolmesh.registry.v1 import upstream_pb2 as upb

from libs.common.errors import MeshError, Reason
from services.executor.adapters.runners.upstreams.entry_point import UpstreamLookup
from services.executor.adapters.upstreams.directory import UpstreamDirectory
from services.executor.domain.tool import Tool
from services.executor.tests.samples import a_tool
from services.executor.tests.upstreams import LOG


def tool(upstream: str = "feed", qualified: str = "feed.ask", **more: str) -> Tool:
    entry_point = {"upstream": upstream, "tool": "ask", "definition": "sha256:1", **more}
    return a_tool(qualified=qualified, entry_point=json.dumps(entry_point))


@pytest.fixture
async def directory() -> UpstreamDirectory:
    known = UpstreamDirectory(grpc.aio.insecure_channel("127.0.0.1:1"), LOG)
    endpoint = upb.UpstreamEndpoint(websocket=upb.WebSocketEndpoint(url="wss://feed.example.com"))
    known._put(upb.Upstream(name="upstreams/feed", generation=1, endpoint=endpoint))
    return known


async def test_the_upstream_and_the_operation_of_a_tool_are_found(directory: UpstreamDirectory) -> None:
    lookup = UpstreamLookup(directory, "grpc", "websocket")
    upstream, entry_point = lookup.require(tool())
    assert (upstream.upstream_id, entry_point.tool, entry_point.definition) == ("feed", "ask", "sha256:1")
    assert lookup.missing_for(tool()) == ""


@pytest.mark.parametrize(
    ("kinds", "asked"),
    [
        pytest.param(("grpc",), {}, id="of another kind"),
        pytest.param(("websocket",), {"upstream": "news", "qualified": "news.ask"}, id="not known"),
        # Its owner would decide what a tool of another namespace claims about itself.
        pytest.param(("websocket",), {"qualified": "bank.ask"}, id="of another namespace"),
        pytest.param(("websocket",), {"more": "x"}, id="unknown member"),
    ],
)
async def test_a_tool_without_an_upstream_of_these_kinds_does_not_run(
    directory: UpstreamDirectory, kinds: tuple[str, ...], asked: dict[str, Any]
) -> None:
    lookup = UpstreamLookup(directory, *kinds)
    assert lookup.find(tool(**asked)) is None
    assert lookup.missing_for(tool(**asked))
    with pytest.raises(MeshError) as caught:
        lookup.require(tool(**asked))
    assert caught.value.reason is Reason.TOOL_UNAVAILABLE
