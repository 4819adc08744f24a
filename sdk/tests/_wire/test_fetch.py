"""StoredResult results: fetched whole, resumed, bounded, and never other than was promised; by both clients alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh_sdk import (
    InternalToolError,
    Reason,
    ResourceExhaustedError,
    RetryPolicy,
    ToolmeshError,
    UpstreamFailureError,
)

from libs.common.errors import MeshError
from sdk.tests.executor_samples import (
    CONTENT,
    REF,
    SECRET,
    digest_of,
    envelope,
    from_offset,
    persisted,
    piece,
    stored_answer,
)


async def test_content_is_fetched_where_it_is_stored(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", stored_answer())
    mesh.answer("FetchResult", from_offset())
    client = drive(serve(), token="mine")
    result = await client.do("call", "report")
    assert (result.content, result.raw) == (None, b"")
    assert (result.stored.ref, result.stored.size, result.stored.preview) == (REF, len(CONTENT), CONTENT[:16])
    assert await client.do("content", result) == json.loads(CONTENT)
    [asked] = mesh.of("FetchResult")
    assert (asked.request.ref, asked.request.access_token, asked.request.offset) == (REF, SECRET, 0)
    assert asked.metadata["authorization"] == "Bearer mine"
    assert SECRET not in repr(result)


async def test_embedded_content_is_not_fetched(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", pb.InvokeResponse(result=envelope({"a": 1}, persisted=[persisted()])))
    client = drive(serve())
    assert await client.do("content", await client.do("call", "report")) == {"a": 1}
    assert mesh.of("FetchResult") == []


async def test_a_name_and_its_token_are_enough(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("FetchResult", from_offset())
    assert await drive(serve()).do("fetch_result", REF, SECRET) == CONTENT


async def test_a_stored_result_may_be_empty(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("FetchResult", [piece(b"", 0, 0)])
    assert await drive(serve()).do("fetch_result", REF, SECRET) == b""


@pytest.mark.parametrize("broken_off", [grpc.StatusCode.UNAVAILABLE, None])
async def test_a_lost_stream_is_resumed_where_it_broke_off(
    drive: Any, mesh: Any, serve: Callable[..., str], broken_off: Any
) -> None:
    begun = [piece(CONTENT, 0, 4096), *([broken_off] if broken_off else [])]
    mesh.answer("FetchResult", begun, from_offset())
    client = drive(serve())
    assert await client.do("fetch_result", REF, SECRET) == CONTENT
    assert [call.request.offset for call in mesh.of("FetchResult")] == [0, 4096]
    assert len(client.pauses) == 1


async def test_a_stream_that_never_ends_well_fails(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("FetchResult", [])
    with pytest.raises(UpstreamFailureError) as caught:
        await drive(serve(), retry=RetryPolicy(attempts=4)).do("fetch_result", REF, SECRET)
    assert caught.value.attempts == len(mesh.of("FetchResult")) == 4


async def test_what_is_gone_is_not_asked_for_again(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("FetchResult", MeshError(Reason.NOT_FOUND))
    with pytest.raises(ToolmeshError) as caught:
        await drive(serve()).do("fetch_result", REF, "wrong")
    assert caught.value.reason is Reason.NOT_FOUND
    assert len(mesh.of("FetchResult")) == 1


async def test_more_than_is_wanted_is_not_even_asked_for(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", stored_answer())
    client = drive(serve())
    result = await client.do("call", "report")
    with pytest.raises(ResourceExhaustedError):
        await client.do("content", result, max_bytes=len(CONTENT) - 1)
    assert mesh.of("FetchResult") == []


async def test_a_size_announced_by_the_stream_is_limited_too(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("FetchResult", from_offset())
    client = drive(serve())
    with pytest.raises(ResourceExhaustedError):
        await client.do("fetch_result", REF, SECRET, max_bytes=len(CONTENT) - 1)
    assert await client.do("fetch_result", REF, SECRET, max_bytes=len(CONTENT)) == CONTENT


# As long as the stored result, and JSON as well: only its digest tells.
OTHER = CONTENT.replace(b"[0,", b"[9,")


@pytest.mark.parametrize(
    "pieces",
    [
        [piece(OTHER, 0, len(OTHER), digest=digest_of(CONTENT))],
        [piece(CONTENT, 0, 100), piece(CONTENT, 200, 300)],
        [piece(CONTENT, 0, 100), piece(CONTENT, 0, 100)],
        [piece(CONTENT, 0, 100), piece(CONTENT, 100, 200, size_bytes=200)],
        [piece(CONTENT, 0, 100), piece(CONTENT, 100, 200, digest="sha256:" + "0" * 64)],
        [piece(CONTENT, 0, 100), piece(CONTENT, 100, len(CONTENT), content=CONTENT)],
    ],
    ids=["changed", "gap", "again", "size", "digest", "more"],
)
async def test_what_was_not_promised_is_refused(
    drive: Any, mesh: Any, serve: Callable[..., str], pieces: list[Any]
) -> None:
    mesh.answer("FetchResult", pieces)
    with pytest.raises(InternalToolError) as caught:
        await drive(serve()).do("fetch_result", REF, SECRET)
    assert caught.value.reason is Reason.RESULT_INVALID
    assert len(mesh.of("FetchResult")) == 1


async def test_the_digest_of_the_envelope_wins_over_that_of_the_stream(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    mesh.answer("Invoke", stored_answer())
    mesh.answer("FetchResult", from_offset(OTHER))
    client = drive(serve())
    with pytest.raises(InternalToolError):
        await client.do("content", await client.do("call", "report"))
