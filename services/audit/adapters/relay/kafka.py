"""Relays to a Kafka topic.

The producer is idempotent and waits for all in-sync replicas, so within a session each partition receives its events
once and in order. A session with a failure or timeout is discarded, and the next one sends everything again from the
stored position: events may arrive twice, but never before an earlier one. Giving up a single message would leave a gap,
so messages have no timeout of their own, and a refused message ends the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer

from services.audit.domain.errors import SinkError
from services.audit.domain.relay.cloudevent import CONTENT_TYPE, CloudEvent

ACK_TIMEOUT_SECONDS = 20.0
_FLUSH_SECONDS = 0.1
_HEADERS: list[tuple[str, str | bytes | None]] = [("content-type", CONTENT_TYPE.encode())]
_DELIVERY_GUARANTEES: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "message.timeout.ms": 0,
    "enable.gapless.guarantee": True,
    # One request in flight per broker: no request can overtake a failed one.
    "max.in.flight.requests.per.connection": 1,
    # The same partitioner as in clients of other languages.
    "partitioner": "murmur2_random",
}
# Only settings of the connection; none that decide what is sent, retried or dropped.
_ALLOWED_PREFIXES = (
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "enable.sasl.",
    "socket.",
    "broker.",
    "client.",
    "compression.",
)
_TUNING: dict[str, Any] = {
    "client.id": "toolmesh-audit-relay",
    "compression.type": "zstd",
    "linger.ms": 5,
    "queue.buffering.max.messages": 10_000,
    "queue.buffering.max.kbytes": 32 * 1024,
    "reconnect.backoff.max.ms": 2_000,
}


class KafkaSink:
    """Implements RelaySink with one topic. The client library blocks, so a thread waits for it."""

    def __init__(
        self,
        brokers: str,
        topic: str,
        extra: Mapping[str, str] | None = None,
        *,
        ack_timeout: float = ACK_TIMEOUT_SECONDS,
    ) -> None:
        forbidden = sorted(name for name in extra or {} if not name.startswith(_ALLOWED_PREFIXES))
        if forbidden:
            raise ValueError(f"settings not allowed for the relay: {', '.join(forbidden)}")
        connection = {"bootstrap.servers": brokers, "error_cb": self._remember_error, "logger": _silent_logger()}
        self._configuration = {**_TUNING, **(extra or {}), **_DELIVERY_GUARANTEES, **connection}
        self._topic, self._ack_timeout = topic, ack_timeout
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="relay-kafka")
        self._producer: Producer | None = None
        self._last_error = ""
        """Last error that the client library reported."""

    @property
    def name(self) -> str:
        """The name under which the position is stored; another topic starts with the whole log."""
        return f"kafka/{self._topic}"

    async def open(self, log_id: str, position: int) -> int:
        """Implement `RelaySink.open`. A topic keeps acknowledged events, so the position is valid."""
        self._producer, self._last_error = Producer(self._configuration), ""
        return position

    async def publish(self, events: Sequence[CloudEvent]) -> None:
        """Implement `RelaySink.publish`."""
        if self._producer is None:
            raise SinkError("the sink is closed")
        await asyncio.get_running_loop().run_in_executor(self._thread, self._send, self._producer, events)

    async def erase(self, sequences: Sequence[int]) -> None:
        """Implement `RelaySink.erase`: does nothing. Events of one call share a key, so no tombstone removes one of
        them; readers of the topic act on the `log.payload.erased` event."""

    async def close(self) -> None:
        """Implement `RelaySink.close`."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, _discard, producer)

    def _remember_error(self, error: Any) -> None:
        self._last_error = f"{error.name()} {error.str()}"

    def _send(self, producer: Producer, events: Sequence[CloudEvent]) -> None:
        failures: list[str] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failures.append(error.name())

        end = time.monotonic() + self._ack_timeout
        try:
            for event in events:
                producer.produce(self._topic, event.body, event.key, on_delivery=delivered, headers=_HEADERS)
            while producer.flush(_FLUSH_SECONDS) and not failures:
                # Closed meanwhile: the process shuts down.
                if time.monotonic() > end or self._producer is not producer:
                    raise SinkError(f"the brokers did not acknowledge in time: {self._last_error or 'no error'}")
        except (KafkaException, BufferError) as error:
            raise SinkError(f"the producer accepted no more events: {error}") from error
        if failures:
            raise SinkError(f"the brokers refused an event: {failures[0]}")


def read_properties(path: Path | None) -> dict[str, str]:
    """Return the settings of a file with lines `name=value`; empty lines and comments (#) are skipped."""
    lines = [line.strip() for line in path.read_text().splitlines()] if path else []
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}


def _silent_logger() -> logging.Logger:
    """Return a disabled logger: the relay reports errors itself, in the format of all other log lines."""
    logger = logging.getLogger("toolmesh.relay.kafka")
    logger.disabled = True
    return logger


def _discard(producer: Producer) -> None:
    """End a session at once: unacknowledged events are dropped here and sent again by the next session."""
    # After a fatal error every call raises it again.
    with contextlib.suppress(KafkaException):
        producer.purge(in_queue=True, in_flight=True, blocking=True)
    with contextlib.suppress(KafkaException):
        producer.flush(_FLUSH_SECONDS)
