"""The Kafka sink with failing brokers, on a mock cluster in another process.

Delivery is at least once: an event may arrive twice, but its first delivery is in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from services.audit.adapters.relay.kafka import KafkaSink, read_properties
from services.audit.domain.errors import SinkError
from services.audit.tests.sinks import (
    PARTITIONS,
    TOPIC,
    KafkaSinkHarness,
    an_event,
    first_deliveries_in_order,
    sequences,
)
from tests.harness.servers.kafka import (
    CUT,
    MESSAGE_TOO_LARGE,
    NOT_AUTHORIZED,
    NOT_LEADER,
    PRODUCE,
    TIMED_OUT,
    TOO_FEW_AFTER_APPEND,
    TOO_FEW_REPLICAS,
    KafkaCluster,
    running_kafka,
)


@pytest.fixture
def kafka() -> Iterator[KafkaCluster]:
    with running_kafka() as cluster:
        cluster.make_topic(TOPIC, PARTITIONS)
        yield cluster


def check(sink_harness: KafkaSinkHarness, count: int, *, once: bool) -> None:
    lanes = [sequences(lane) for lane in sink_harness.lanes("")]
    assert {n for lane in lanes for n in lane} == set(range(count))
    assert all(first_deliveries_in_order(lane) for lane in lanes)
    if once:
        assert sum(map(len, lanes)) == count


async def test_requests_that_fail_are_retried_in_order_and_once(kafka: KafkaCluster) -> None:
    sink_harness = KafkaSinkHarness(kafka)
    await sink_harness.sink.open("", 0)
    trouble = [NOT_LEADER, CUT, TOO_FEW_REPLICAS, TIMED_OUT, TOO_FEW_AFTER_APPEND, CUT]
    for first in range(0, 3000, 300):
        kafka.order("errors", api_key=PRODUCE, codes=trouble[first // 300 % 3 :: 2])
        await sink_harness.sink.publish([an_event(n, key=f"call-{n % 50}") for n in range(first, first + 300)])
    check(sink_harness, 3000, once=True)
    await sink_harness.sink.close()


async def test_partitions_may_change_their_brokers(kafka: KafkaCluster) -> None:
    sink_harness = KafkaSinkHarness(kafka)
    await sink_harness.sink.open("", 0)
    for number in range(6):
        for partition in range(PARTITIONS):
            kafka.order("leader", topic=TOPIC, partition=partition, broker=(number + partition) % 3 + 1)
        first = number * 200
        await sink_harness.sink.publish([an_event(n, key=f"call-{n % 50}") for n in range(first, first + 200)])
    check(sink_harness, 1200, once=True)
    await sink_harness.sink.close()


async def test_brokers_that_go_away_and_return_lose_nothing(kafka: KafkaCluster) -> None:
    sink_harness = KafkaSinkHarness(kafka, ack_timeout=30)
    await sink_harness.sink.open("", 0)
    await sink_harness.sink.publish([an_event(n, key=f"call-{n % 50}") for n in range(300)])
    for broker in (1, 2, 3):
        kafka.order("down", broker=broker)
    sending = asyncio.ensure_future(
        sink_harness.sink.publish([an_event(n, key=f"call-{n % 50}") for n in range(300, 900)])
    )
    done, _ = await asyncio.wait({sending}, timeout=0.5)
    assert not done
    for broker in (3, 1, 2):
        kafka.order("up", broker=broker)
    await sending
    check(sink_harness, 900, once=True)
    await sink_harness.sink.close()


async def test_brokers_that_stay_away_are_a_failure_and_the_next_session_goes_on(kafka: KafkaCluster) -> None:
    # Long enough for brokers that are there, on a busy machine too.
    sink_harness = KafkaSinkHarness(kafka, ack_timeout=10)
    await sink_harness.sink.open("", 0)
    await sink_harness.sink.publish([an_event(n) for n in range(100)])
    for broker in (1, 2, 3):
        kafka.order("down", broker=broker)
    with pytest.raises(SinkError):
        await sink_harness.sink.publish([an_event(n) for n in range(100, 200)])
    await sink_harness.sink.close()
    for broker in (1, 2, 3):
        kafka.order("up", broker=broker)
    await sink_harness.sink.open("", 100)
    await sink_harness.sink.publish([an_event(n) for n in range(100, 300)])
    # The queue of the first session was discarded, so it does not arrive after the second's events.
    check(sink_harness, 300, once=False)
    await sink_harness.sink.close()


@pytest.mark.parametrize("refusal", [MESSAGE_TOO_LARGE, NOT_AUTHORIZED])
async def test_an_event_that_is_refused_for_good_is_not_passed_by_later_ones(kafka: KafkaCluster, refusal: int) -> None:
    """Several requests are in flight when the first is refused; later ones must not be stored before it."""
    sink_harness = KafkaSinkHarness(kafka)
    await sink_harness.sink.open("", 0)
    events = [replace(an_event(n, key="call-1"), body=an_event(n).body + b" " * 3000) for n in range(1500)]
    kafka.order("errors", api_key=PRODUCE, codes=[refusal])
    with pytest.raises(SinkError):
        await sink_harness.sink.publish(events)
    await sink_harness.sink.close()
    await sink_harness.sink.open("", 0)
    await sink_harness.sink.publish(events)
    check(sink_harness, 1500, once=False)
    await sink_harness.sink.close()


async def test_closing_ends_a_publish_that_waits(kafka: KafkaCluster) -> None:
    sink_harness = KafkaSinkHarness(kafka, ack_timeout=300)
    await sink_harness.sink.open("", 0)
    for broker in (1, 2, 3):
        kafka.order("down", broker=broker)
    sending = asyncio.ensure_future(sink_harness.sink.publish([an_event(0)]))
    await asyncio.wait({sending}, timeout=0.3)
    await sink_harness.sink.close()
    with pytest.raises(SinkError):
        await sending


async def test_an_event_carries_its_key_and_its_content_type(kafka: KafkaCluster) -> None:
    sink_harness = KafkaSinkHarness(kafka)
    await sink_harness.sink.open("", 0)
    await sink_harness.sink.publish([an_event(0, key="call-1")])
    [message] = [message for lane in kafka.read(TOPIC, PARTITIONS) for message in lane]
    assert message.key() == b"call-1"
    assert message.headers() == [("content-type", b"application/cloudevents+json")]
    await sink_harness.sink.close()


def test_settings_come_from_a_file_but_not_those_that_keep_the_order(tmp_path: Path) -> None:
    path = tmp_path / "kafka.properties"
    path.write_text("# how to get in\nsecurity.protocol = sasl_ssl\n\nsasl.password=a=b\n")
    assert read_properties(path) == {"security.protocol": "sasl_ssl", "sasl.password": "a=b"}
    assert read_properties(None) == {}
    for name in ("acks", "request.required.acks", "delivery.timeout.ms", "retries", "transactional.id"):
        with pytest.raises(ValueError, match=name):
            KafkaSink("127.0.0.1:1", "t", {name: "1"})
