"""Relay sinks with a reader for what they received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import orjson
import redis

from services.audit.adapters.relay.kafka import KafkaSink
from services.audit.adapters.relay.redis import PREFIX, RedisSink
from services.audit.domain.merkle.merkle import leaf_hash
from services.audit.domain.relay.cloudevent import CloudEvent
from services.audit.domain.relay.ports import RelaySink
from tests.harness.servers.kafka import KafkaCluster

TOPIC = "toolmesh.audit.records"
PARTITIONS = 3


class SinkHarness(Protocol):
    """A sink and a reader of its events."""

    sink: RelaySink

    def lanes(self, log_id: str) -> list[list[dict[str, Any]]]:
        """Return the received events of each partition."""
        ...


class RedisSinkHarness:
    """A Redis stream."""

    def __init__(self, url: str, **how: Any) -> None:
        self.sink: RelaySink = RedisSink(url, **how)
        self.client = redis.Redis.from_url(url)

    def lanes(self, log_id: str) -> list[list[dict[str, Any]]]:
        return [[orjson.loads(fields[b"event"]) for _, fields in self.client.xrange(PREFIX + log_id)]]  # type: ignore[index, union-attr]


class KafkaSinkHarness:
    """A topic with three partitions."""

    def __init__(self, cluster: KafkaCluster, topic: str = TOPIC, **how: Any) -> None:
        self.cluster, self.topic = cluster, topic
        self.sink: RelaySink = KafkaSink(cluster.bootstrap, topic, **how)

    def lanes(self, log_id: str) -> list[list[dict[str, Any]]]:
        lanes = self.cluster.read(self.topic, PARTITIONS)
        return [[orjson.loads(message.value() or b"") for message in lane] for lane in lanes]


def an_event(sequence: int, *, content: bytes = b"", key: str = "") -> CloudEvent:
    """Return an event with its sequence in the body."""
    body = orjson.dumps({"sequence": str(sequence), "partitionkey": key})
    return CloudEvent(sequence, leaf_hash(content or body), key or f"call-{sequence % 5}", body)


def sequences(lane: Sequence[dict[str, Any]]) -> list[int]:
    """Return the sequences of the events in order of arrival."""
    return [int(event["sequence"]) for event in lane]


def first_deliveries_in_order(lane: Sequence[int]) -> bool:
    """Return whether the first deliveries of all events are in log order."""
    first = list(dict.fromkeys(lane))
    return first == sorted(first)
