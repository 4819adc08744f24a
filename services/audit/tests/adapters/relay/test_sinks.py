"""The contract of every relay sink, against a real Valkey and a Kafka mock cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from libs.common.ids import new_id
from services.audit.domain.errors import SinkError
from services.audit.tests.sinks import (
    PARTITIONS,
    KafkaSinkHarness,
    RedisSinkHarness,
    SinkHarness,
    an_event,
    first_deliveries_in_order,
    sequences,
)
from tests.harness.servers.kafka import KafkaCluster, running_kafka


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    with running_kafka() as cluster:
        yield cluster


@pytest.fixture(params=["redis", "kafka"])
def sink_harness(request: pytest.FixtureRequest) -> SinkHarness:
    if request.param == "redis":
        return RedisSinkHarness(request.getfixturevalue("valkey_url"))
    cluster: KafkaCluster = request.getfixturevalue("kafka")
    topic = f"t{new_id()}"
    cluster.make_topic(topic, PARTITIONS)
    return KafkaSinkHarness(cluster, topic)


async def test_acknowledged_events_are_stored_in_order(sink_harness: SinkHarness) -> None:
    log_id = new_id()
    assert await sink_harness.sink.open(log_id, 0) == 0
    await sink_harness.sink.publish([an_event(n) for n in range(400)])
    await sink_harness.sink.publish([an_event(n) for n in range(400, 1000)])
    lanes = [sequences(lane) for lane in sink_harness.lanes(log_id)]
    assert [lane for lane in lanes if lane != sorted(lane)] == []
    assert sorted(n for lane in lanes for n in lane) == list(range(1000))
    await sink_harness.sink.close()


async def test_events_of_one_key_share_a_lane(sink_harness: SinkHarness) -> None:
    log_id = new_id()
    await sink_harness.sink.open(log_id, 0)
    await sink_harness.sink.publish([an_event(n, key=f"call-{n % 7}") for n in range(70)])
    lanes = sink_harness.lanes(log_id)
    homes = {
        key: {i for i, lane in enumerate(lanes) for e in lane if e["partitionkey"] == key}
        for key in ["call-3", "call-4"]
    }
    assert {len(found) for found in homes.values()} == {1}
    await sink_harness.sink.close()


async def test_a_repeat_never_comes_before_what_is_earlier(sink_harness: SinkHarness) -> None:
    """After a crash between acknowledgement and position, the next session begins at the position."""
    log_id = new_id()
    await sink_harness.sink.open(log_id, 0)
    await sink_harness.sink.publish([an_event(n) for n in range(100)])
    await sink_harness.sink.close()
    assert await sink_harness.sink.open(log_id, 40) == 40
    await sink_harness.sink.publish([an_event(n) for n in range(40, 160)])
    lanes = [sequences(lane) for lane in sink_harness.lanes(log_id)]
    assert all(first_deliveries_in_order(lane) for lane in lanes)
    assert {n for lane in lanes for n in lane} == set(range(160))
    await sink_harness.sink.close()


async def test_a_closed_sink_takes_nothing_and_can_be_closed_twice(sink_harness: SinkHarness) -> None:
    log_id = new_id()
    await sink_harness.sink.open(log_id, 0)
    await sink_harness.sink.close()
    await sink_harness.sink.close()
    with pytest.raises(SinkError):
        await sink_harness.sink.publish([an_event(0)])


@pytest.mark.parametrize("sink_harness", ["redis", "kafka"], indirect=True)
async def test_the_name_of_a_sink_stays(sink_harness: SinkHarness) -> None:
    before = sink_harness.sink.name
    await sink_harness.sink.open(new_id(), 0)
    assert sink_harness.sink.name == before != ""
    await sink_harness.sink.close()
