"""A Kafka cluster in another process, to be hurt: brokers that go away, requests that fail, an owner that is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

PRODUCE = 0
# What a broker answers in trouble: it leads the partition no longer, it waited in vain, too few replicas are in sync.
NOT_LEADER, TIMED_OUT, TOO_FEW_REPLICAS, TOO_FEW_AFTER_APPEND, CUT = 6, 7, 19, 20, -195
# What it answers when trying again is of no use.
MESSAGE_TOO_LARGE, NOT_AUTHORIZED = 10, 29
_ROOT = Path(__file__).resolve().parents[3]


class KafkaCluster:
    """Tells the owner what to do, and reads what the topics hold."""

    def __init__(self, owner: subprocess.Popen[str]) -> None:
        self.owner = owner
        assert owner.stdout is not None
        self.bootstrap: str = json.loads(owner.stdout.readline())["bootstrap"]

    def order(self, order: str, **how: Any) -> None:
        """Give one order; return when it is done."""
        assert self.owner.stdin is not None
        assert self.owner.stdout is not None
        self.owner.stdin.write(json.dumps({"order": order, **how}) + "\n")
        self.owner.stdin.flush()
        assert json.loads(self.owner.stdout.readline()) == {"code": 0}

    def make_topic(self, name: str, partitions: int) -> None:
        """Make a topic whose partitions are on all brokers."""
        self.order("topic", name=name, partitions=partitions, replicas=3)

    def read(self, topic: str, partitions: int, seconds: float = 30.0) -> list[list[Message]]:
        """Return everything that a topic holds at the moment, by partition."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.auto.commit": False}
        consumer = Consumer(settings)
        try:
            places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
            ends = [consumer.get_watermark_offsets(place, timeout=seconds)[1] for place in places]
            consumer.assign(places)
            return _read_to(consumer, ends, time.monotonic() + seconds)
        finally:
            consumer.close()

    def kill(self) -> None:
        """End the owner without warning; the brokers and all they held are gone."""
        self.owner.kill()
        self.owner.wait()


def _read_to(consumer: Consumer, ends: list[int], deadline: float) -> list[list[Message]]:
    found: list[list[Message]] = [[] for _ in ends]
    while any(len(lane) < end for lane, end in zip(found, ends, strict=True)):
        assert time.monotonic() < deadline, "the topic could not be read to its end"
        for message in consumer.consume(500, timeout=0.2):
            if message.error() is None:
                lane = message.partition()
                assert lane is not None
                found[lane].append(message)
    return found


@contextmanager
def running_kafka(brokers: int = 3) -> Iterator[KafkaCluster]:
    """Run a cluster in a process of its own."""
    command = [sys.executable, "-m", "tests.harness.servers.kafka_owner", str(brokers)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=_ROOT, stdin=pipe, stdout=pipe, text=True) as owner:
        try:
            yield KafkaCluster(owner)
        finally:
            owner.kill()
