"""A watch misses nothing and repeats nothing, however often its stream is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from toolmesh.audit.v1 import audit_record_pb2, audit_service_pb2, checkpoint_pb2
from toolmesh_sdk import AuthorizationDeniedError, Reason, RetryPolicy, UpstreamFailureError
from toolmesh_sdk._wire.watch import STREAM_SECONDS, Watch
from toolmesh_sdk.errors import ToolmeshError, error_for_reason

from libs.common.errors import MeshError

LOST = grpc.StatusCode.UNAVAILABLE


async def test_a_lost_stream_is_resumed_behind_the_last_record(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    mesh.answer("WatchRecords", [_step(4), _step(6), LOST], LOST, [_step(7)])
    found = await drive(serve()).take("watch_records", 3, from_sequence=4, tool="echo")
    assert [record.sequence for record in found] == [4, 6, 7]
    assert [call.request.from_sequence for call in mesh.seen] == [4, 7, 7]
    assert {call.request.filter.tool_prefix for call in mesh.seen} == {"tools/core.echo/"}
    assert all(call.remaining is not None for call in mesh.seen)


async def test_from_now_on_means_behind_what_the_log_holds(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    checkpoint = checkpoint_pb2.Checkpoint(first_sequence=10, tree_size=2)
    mesh.answer("GetCheckpoint", audit_service_pb2.GetCheckpointResponse(checkpoint=checkpoint))
    mesh.answer("WatchRecords", LOST, [_step(12)])
    await drive(serve()).take("watch_records", 1)
    assert [call.request.from_sequence for call in mesh.of("WatchRecords")] == [12, 12]


async def test_a_watch_without_progress_gives_up(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("WatchRecords", [_step(1), LOST], LOST)
    client = drive(serve())
    with pytest.raises(UpstreamFailureError):
        await client.take("watch_records", from_sequence=0)
    # Long enough for a service to restart, though not for ever.
    assert 30 < sum(client.pauses) < 120


async def test_a_watch_that_must_not_be_retried_is_not(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("WatchRecords", LOST)
    with pytest.raises(UpstreamFailureError):
        await drive(serve(), retry=RetryPolicy(attempts=1)).take("watch_records", from_sequence=0)
    assert len(mesh.seen) == 1


async def test_a_refused_watch_ends_at_once(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("WatchRecords", MeshError(Reason.SCOPE_MISSING))
    with pytest.raises(AuthorizationDeniedError):
        await drive(serve()).take("watch_records", from_sequence=0)
    assert len(mesh.seen) == 1


async def test_a_stream_that_ended_with_its_token_is_resumed_with_the_next(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    over = MeshError(Reason.TOKEN_EXPIRED)
    mesh.answer("WatchRecords", [_step(4), over], [_step(5), over], [_step(6)])
    tokens = iter("abcdef")
    found = await drive(serve(), token=lambda: next(tokens)).take("watch_records", 3, from_sequence=4)
    assert [record.sequence for record in found] == [4, 5, 6]
    assert [call.metadata["authorization"] for call in mesh.seen] == ["Bearer a", "Bearer b", "Bearer c"]


async def test_a_watch_whose_token_is_over_for_good_ends(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("WatchRecords", [_step(4), MeshError(Reason.TOKEN_EXPIRED)], MeshError(Reason.TOKEN_EXPIRED))
    with pytest.raises(ToolmeshError) as caught:
        await drive(serve(), token="same").take("watch_records", from_sequence=4)
    assert caught.value.reason is Reason.TOKEN_EXPIRED
    assert len(mesh.seen) == 2


async def test_a_watch_ends_when_its_time_is_over(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("WatchRecords", mesh.hold)
    found = await drive(serve()).take("watch_records", from_sequence=1, timeout=0.3)
    assert found == []


@pytest.mark.parametrize(
    "error",
    [error_for_reason(Reason.DEADLINE_EXCEEDED), error_for_reason(Reason.INTERNAL, answered=False)],
    ids=["its deadline", "a reset by a proxy"],
)
def test_a_stream_that_lived_its_time_is_opened_again_at_once(error: ToolmeshError) -> None:
    now = [0.0]
    watch = Watch(audit_service_pb2.WatchRecordsRequest(), RetryPolicy(attempts=1), None, lambda: now[0])
    for _ in range(5):
        assert watch.next_stream() == STREAM_SECONDS
        now[0] += STREAM_SECONDS * 0.99
        assert watch.wait_after(error) == 0.0


def test_a_stream_that_was_quiet_for_long_does_not_use_up_the_patience() -> None:
    now = [0.0]
    watch = Watch(audit_service_pb2.WatchRecordsRequest(), RetryPolicy(attempts=2), None, lambda: now[0])
    for _ in range(50):
        watch.next_stream()
        now[0] += 300.0
        watch.wait_after(error_for_reason(Reason.SERVICE_UNAVAILABLE, answered=False))


def _step(sequence: int) -> Any:
    return audit_service_pb2.WatchRecordsResponse(record=audit_record_pb2.LoggedRecord(sequence=sequence))
