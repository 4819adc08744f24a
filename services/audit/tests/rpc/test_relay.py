"""The relay in running replicas: takeover, unavailable sinks, and appends that never wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import httpx
import orjson
import pytest
import redis
from toolmesh.audit.v1 import log_service_pb2 as log_pb

from services.audit.adapters.relay.redis import PREFIX
from services.audit.tests.database import sql
from services.audit.tests.replicas import Replica, Start
from services.audit.tests.sample import a_record
from services.audit.tests.sinks import PARTITIONS, TOPIC, first_deliveries_in_order
from tests.harness.servers.kafka import KafkaCluster, running_kafka
from tests.harness.stores import free_port


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110  (what is waited for happens behind a socket)
            await asyncio.sleep(0.02)


@pytest.fixture
def to_redis(audit_environment: dict[str, str], valkey_url: str) -> Iterator[redis.Redis]:
    audit_environment |= {"TOOLMESH_RELAY": "redis", "TOOLMESH_REDIS_URL": valkey_url}
    with redis.Redis.from_url(valkey_url) as client:
        # Test databases are copies with the same log id: the stream of an earlier test would be another history.
        client.flushdb()
        yield client


@pytest.fixture
def to_kafka(audit_environment: dict[str, str]) -> Iterator[KafkaCluster]:
    with running_kafka() as cluster:
        cluster.make_topic(TOPIC, PARTITIONS)
        audit_environment |= {"TOOLMESH_RELAY": "kafka", "TOOLMESH_KAFKA_BROKERS": cluster.bootstrap}
        yield cluster


def audit_log(replica: Replica) -> str:
    [(log_id,)] = sql(replica.url, "select log_id from tree_head")
    return str(log_id)


def streamed(client: redis.Redis, replica: Replica) -> list[str]:
    return [orjson.loads(fields[b"event"])["id"] for _, fields in client.xrange(PREFIX + audit_log(replica))]  # type: ignore[index, union-attr]


def stored(replica: Replica) -> list[str]:
    return [record_id for _, record_id, _, _ in replica.stored()]


def position(replica: Replica) -> int:
    return int((sql(replica.url, "select coalesce(max(position), 0) from relay_positions"))[0][0])


def ready_page(replica: Replica) -> str:
    return httpx.get(f"http://127.0.0.1:{replica.application.ops.port}/readyz").text


async def test_appended_records_are_relayed_in_order(start: Start, to_redis: redis.Redis) -> None:
    audit = await start()
    for _ in range(5):
        await audit.append(*(a_record() for _ in range(20)))
    await until(lambda: streamed(to_redis, audit) == stored(audit))
    await until(lambda: position(audit) == 100)
    await until(lambda: "relay redis: leads, 0 records and 0" in ready_page(audit))


async def test_an_erased_payload_leaves_the_stream(start: Start, to_redis: redis.Redis) -> None:
    audit = await start()
    await audit.append(a_record(arguments_summary=b'{"text":"to be forgotten"}'), a_record())
    await until(lambda: position(audit) == 2)
    request = log_pb.ErasePayloadRequest(sequence=0, reason="asked for")
    answer = await audit.log().ErasePayload(request)
    assert answer.relayed_copy == log_pb.RELAYED_COPY_REMOVED_BY_RELAY
    await until(lambda: position(audit) == 3)
    entries = to_redis.xrange(PREFIX + audit_log(audit))
    assert [name for name, _ in entries] == [b"1-1", b"2-1"]  # type: ignore[union-attr]
    assert b"to be forgotten" not in repr(entries).encode()
    await audit.append(a_record())
    await until(lambda: position(audit) == 4)


async def test_another_replica_takes_over_the_relay_without_repeats(start: Start, to_redis: redis.Redis) -> None:
    one, other = await start(), await start()
    await one.append(*(a_record() for _ in range(30)))
    await other.append(*(a_record() for _ in range(30)))
    await until(lambda: streamed(to_redis, one) == stored(one))
    await one.end()
    await other.append(*(a_record() for _ in range(30)))
    await until(lambda: streamed(to_redis, other) == stored(other))
    assert len(stored(other)) == 90
    await until(lambda: "leads" in ready_page(other))


async def test_a_stream_that_is_lost_between_two_records_is_filled_up(start: Start, to_redis: redis.Redis) -> None:
    """Eviction, flush or failover: no command fails, so only the stream itself shows the loss."""
    audit = await start()
    await audit.append(*(a_record() for _ in range(30)))
    await until(lambda: position(audit) == 30)
    to_redis.delete(PREFIX + audit_log(audit))
    await audit.append(a_record())
    await until(lambda: position(audit) == 31)
    assert streamed(to_redis, audit) == stored(audit)


async def test_a_sink_that_is_away_never_holds_up_an_append(start: Start, audit_environment: dict[str, str]) -> None:
    audit_environment |= {"TOOLMESH_RELAY": "redis", "TOOLMESH_REDIS_URL": f"redis://127.0.0.1:{free_port()}/0"}
    audit = await start()
    for _ in range(20):
        await audit.append(*(a_record() for _ in range(10)))
    await until(lambda: "failing" in ready_page(audit) or "starting" in ready_page(audit))
    assert len(stored(audit)) == 200
    assert position(audit) == 0
    async with asyncio.timeout(60):
        await audit.end()


async def test_brokers_that_were_away_get_everything_later(start: Start, to_kafka: KafkaCluster) -> None:
    audit = await start()
    await audit.append(*(a_record(invocation_id=f"call-{n % 9}") for n in range(50)))
    await until(lambda: position(audit) == 50)
    for broker in (1, 2, 3):
        to_kafka.order("down", broker=broker)
    for _ in range(5):
        await audit.append(*(a_record(invocation_id=f"call-{n % 9}") for n in range(50)))
    assert position(audit) == 50
    for broker in (1, 2, 3):
        to_kafka.order("up", broker=broker)
    await until(lambda: position(audit) == 300)
    check_topic(to_kafka, stored(audit))
    answer = await audit.log().ErasePayload(log_pb.ErasePayloadRequest(sequence=0, reason="asked for"))
    assert answer.relayed_copy == log_pb.RELAYED_COPY_STAYS
    await until(lambda: position(audit) == 301)


async def test_a_cluster_that_is_killed_is_not_believed_to_have_more_than_it_acknowledged(
    start: Start, to_kafka: KafkaCluster, audit_environment: dict[str, str]
) -> None:
    """The owner of the brokers is killed while records are under way. The next cluster gets all that the first had not
    acknowledged: from the position on, without a hole."""
    audit = await start()
    await audit.append(*(a_record() for _ in range(50)))
    await until(lambda: position(audit) == 50)
    await asyncio.gather(audit.append(*(a_record() for _ in range(300))), asyncio.to_thread(to_kafka.kill))
    await audit.append(*(a_record() for _ in range(10)))
    await audit.end()
    reached = position(audit)
    assert 50 <= reached < 360
    with running_kafka() as successor:
        successor.make_topic(TOPIC, PARTITIONS)
        audit_environment["TOOLMESH_KAFKA_BROKERS"] = successor.bootstrap
        again = await start()
        await until(lambda: position(again) == 360)
        check_topic(successor, stored(again)[reached:], first=reached)


def check_topic(cluster: KafkaCluster, record_ids: list[str], first: int = 0) -> None:
    lanes = [[orjson.loads(m.value() or b"") for m in lane] for lane in cluster.read(TOPIC, PARTITIONS)]
    told = {int(event["sequence"]): event["id"] for lane in lanes for event in lane}
    assert [told[first + n] for n in range(len(record_ids))] == record_ids
    assert len(told) == len(record_ids)
    assert all(first_deliveries_in_order([int(event["sequence"]) for event in lane]) for lane in lanes)
