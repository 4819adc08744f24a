"""Previews: asked for like a call, read whole, and their token goes along with the call; by both clients alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh_sdk import Effect, Precondition, PreconditionFailedError, Reason

from libs.common.errors import MeshError
from sdk.tests.executor_samples import PREVIEW, envelope


async def test_a_preview_is_read_whole(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("PreviewInvocation", PREVIEW)
    preview = await drive(serve()).do("preview", "acme.wipe")
    assert preview.changes == (Effect("file:a.md", "delete", "reported"),)
    assert preview.preconditions == (Precondition("it is there", True), Precondition("it is free", False))
    assert (preview.impact, preview.predicted_result) == ("One file would be gone.", {"n": 2**64 - 1})
    assert (preview.approval_required, preview.token) == (True, "shown-1")
    assert preview.expires == datetime.fromtimestamp(1_800_000_000, UTC)
    assert (preview.tool_version, preview.invocation_id) == ("tools/acme.wipe/versions/1.0.0", "inv-p")
    assert preview.trace_id == "t" * 32


async def test_a_tool_that_cannot_tell_predicts_nothing(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("PreviewInvocation", pb.PreviewInvocationResponse())
    preview = await drive(serve()).do("preview", "acme.wipe")
    assert (preview.predicted_result, preview.expires, preview.changes) == (None, None, ())


async def test_an_omitted_result_is_distinguished_from_none(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("PreviewInvocation", pb.PreviewInvocationResponse(result_left_out="too_large"))
    preview = await drive(serve()).do("preview", "acme.wipe")
    assert (preview.predicted_result, preview.result_left_out) == (None, "too_large")


async def test_a_preview_asks_for_what_the_call_would(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("PreviewInvocation", PREVIEW)
    mesh.answer("Invoke", pb.InvokeResponse(result=envelope({})))
    client = drive(serve())
    named: dict[str, Any] = {
        "version": "^1",
        "session_id": "s",
        "task_id": "t",
        "native_call_id": "n",
        "tool_digest": "sha256:" + "0" * 64,
        "priority": 3,
    }
    preview = await client.do("preview", "acme.wipe", {"a": 1}, **named)
    await client.do("call", "acme.wipe", {"a": 1}, preview_token=preview.token, **named)
    expected = pb.InvokeRequest(tool="acme.wipe", arguments=b'{"a":1}', **named)
    assert mesh.of("PreviewInvocation")[0].request.request == expected
    expected.preview_token = "shown-1"
    assert mesh.of("Invoke")[0].request == expected


async def test_a_lost_preview_is_asked_for_again(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("PreviewInvocation", grpc.StatusCode.UNAVAILABLE, PREVIEW)
    assert (await drive(serve()).do("preview", "acme.wipe")).token == "shown-1"
    assert len(mesh.of("PreviewInvocation")) == 2


async def test_a_tool_without_previews_says_so(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("PreviewInvocation", MeshError(Reason.FAILED_PRECONDITION))
    with pytest.raises(PreconditionFailedError):
        await drive(serve()).do("preview", "echo")
