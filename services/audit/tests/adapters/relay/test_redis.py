"""The Redis sink: repeats are absorbed, the length is bounded, lost entries are refilled."""

from __future__ import annotations

import pytest

from libs.common.ids import new_id
from services.audit.adapters.relay.redis import PREFIX, RedisSink
from services.audit.domain.errors import SinkError
from services.audit.tests.sinks import RedisSinkHarness, an_event, sequences
from tests.harness.stores import free_port


@pytest.fixture
def log_id() -> str:
    return new_id()


async def test_a_repeated_event_is_stored_once(valkey_url: str, log_id: str) -> None:
    sink_harness = RedisSinkHarness(valkey_url)
    await sink_harness.sink.open(log_id, 0)
    await sink_harness.sink.publish([an_event(n) for n in range(50)])
    await sink_harness.sink.publish([an_event(n) for n in range(30, 80)])
    assert sequences(sink_harness.lanes(log_id)[0]) == list(range(80))
    await sink_harness.sink.close()


async def test_another_record_at_the_same_sequence_is_not_a_repeat(valkey_url: str, log_id: str) -> None:
    """A database restored from a backup assigns old sequences to new records."""
    sink_harness = RedisSinkHarness(valkey_url)
    await sink_harness.sink.open(log_id, 0)
    await sink_harness.sink.publish([an_event(n) for n in range(5)])
    with pytest.raises(SinkError):
        await sink_harness.sink.publish([an_event(3, content=b"another history")])
    await sink_harness.sink.close()


async def test_a_stream_stays_near_its_length_and_absorbs_what_it_has_trimmed(valkey_url: str, log_id: str) -> None:
    sink_harness = RedisSinkHarness(valkey_url, length=1000)
    await sink_harness.sink.open(log_id, 0)
    for first in range(0, 5000, 500):
        await sink_harness.sink.publish([an_event(n) for n in range(first, first + 500)])
    await sink_harness.sink.publish([an_event(n) for n in range(3)])
    retained = sequences(sink_harness.lanes(log_id)[0])
    assert 1000 <= len(retained) <= 1200
    assert retained == list(range(5000 - len(retained), 5000))
    await sink_harness.sink.close()


async def test_a_stream_that_lost_its_end_asks_for_it_again(valkey_url: str, log_id: str) -> None:
    sink_harness = RedisSinkHarness(valkey_url)
    await sink_harness.sink.open(log_id, 0)
    await sink_harness.sink.publish([an_event(n) for n in range(20)])
    # The position is ahead of the stream: a killed server lost its last second.
    assert await sink_harness.sink.open(log_id, 50) == 20
    await sink_harness.sink.close()


@pytest.mark.parametrize("left", [0, 12])
async def test_a_stream_that_lost_its_end_meanwhile_takes_nothing_behind_the_gap(
    valkey_url: str, log_id: str, left: int
) -> None:
    sink_harness = RedisSinkHarness(valkey_url)
    await sink_harness.sink.open(log_id, 0)
    await sink_harness.sink.publish([an_event(n) for n in range(20)])
    # A failover to a replica that lags.
    sink_harness.client.delete(PREFIX + log_id)
    for event in [an_event(n) for n in range(left)]:
        sink_harness.client.xadd(
            PREFIX + log_id, {"leaf": event.leaf_hash, "event": event.body}, id=f"{event.sequence}-1"
        )
    with pytest.raises(SinkError):
        await sink_harness.sink.publish([an_event(20)])
    assert await sink_harness.sink.open(log_id, 20) == left
    await sink_harness.sink.publish([an_event(n) for n in range(left, 21)])
    assert sequences(sink_harness.lanes(log_id)[0]) == list(range(21))
    await sink_harness.sink.close()


async def test_a_stream_that_is_gone_is_filled_up_as_far_as_it_is_long(valkey_url: str, log_id: str) -> None:
    sink_harness = RedisSinkHarness(valkey_url, length=1000)
    assert await sink_harness.sink.open(log_id, 700) == 0
    assert await sink_harness.sink.open(log_id, 7000) == 6000
    await sink_harness.sink.close()


async def test_a_key_of_another_kind_is_refused(valkey_url: str, log_id: str) -> None:
    sink_harness = RedisSinkHarness(valkey_url)
    await sink_harness.sink.open(log_id, 0)
    sink_harness.client.set(PREFIX + log_id, b"not a stream")
    with pytest.raises(SinkError):
        await sink_harness.sink.publish([an_event(0)])
    await sink_harness.sink.close()


async def test_a_server_that_is_away_is_a_failure_of_the_sink() -> None:
    sink = RedisSink(f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(SinkError):
        await sink.open(new_id(), 0)
    await sink.close()
