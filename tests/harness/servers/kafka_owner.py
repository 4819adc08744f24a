"""The owner of a Kafka cluster for tests, a process of its own: `python -m tests.harness.servers.kafka_owner BROKERS`.

The cluster is the one inside librdkafka: real sockets and the real protocol, in memory, gone with this process. It
says where
its brokers listen, then obeys one JSON line after another and answers each with a line.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import confluent_kafka

_PRODUCER = 0
_ERROR_TEXT_BYTES = 512


def _library() -> ctypes.CDLL:
    """Return the library that the client has loaded already, wherever it was installed."""
    assert confluent_kafka.libversion()
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "librdkafka" in path:
            return ctypes.CDLL(path)
    raise RuntimeError("librdkafka is not loaded")


class Owner:
    """Holds the cluster and does to it what the test asks for."""

    def __init__(self, brokers: int) -> None:
        library = self._library = _library()
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(library, name).restype = ctypes.c_void_p
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        text = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
        configuration = ctypes.c_void_p(library.rd_kafka_conf_new())
        client = library.rd_kafka_new(_PRODUCER, configuration, text, ctypes.c_size_t(_ERROR_TEXT_BYTES))
        self._client = ctypes.c_void_p(client)
        self._cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(self._client, brokers))
        self.bootstrap = str(library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode())

    def topic(self, name: str, partitions: int, replicas: int) -> int:
        """Make a topic."""
        return int(self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, replicas))

    def down(self, broker: int) -> int:
        """Cut every connection of a broker and take no new one."""
        return int(self._library.rd_kafka_mock_broker_set_down(self._cluster, ctypes.c_int32(broker)))

    def up(self, broker: int) -> int:
        """Let a broker take connections again."""
        return int(self._library.rd_kafka_mock_broker_set_up(self._cluster, ctypes.c_int32(broker)))

    def leader(self, topic: str, partition: int, broker: int) -> int:
        """Move a partition to another broker."""
        place = (topic.encode(), ctypes.c_int32(partition), ctypes.c_int32(broker))
        return int(self._library.rd_kafka_mock_partition_set_leader(self._cluster, *place))

    def errors(self, api_key: int, codes: list[int]) -> int:
        """Fail the next requests of a kind, each with a code; -195 cuts the connection without an answer."""
        array = (ctypes.c_int * len(codes))(*codes)
        key = ctypes.c_int16(api_key)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, key, ctypes.c_size_t(len(codes)), array)
        return 0


def main() -> None:
    """Own a cluster until the input ends."""
    owner = Owner(int(sys.argv[1]))
    _say({"bootstrap": owner.bootstrap})
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        _say({"code": getattr(owner, order.pop("order"))(**order)})


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
