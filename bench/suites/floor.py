"""What the machine can do without us: a bare echo, the same behind Envoy, the same behind Envoy and an ASGI server,
the same with two durable
records and nothing else, and a row made durable."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from bench.environment.mesh import Stage, durable, fronted
from bench.floors.echo import ECHO
from bench.load.append_records import FLOOR
from bench.load.calls import ENTRY, MESSAGE
from bench.load.generator import offer
from bench.report.measurement import Row
from bench.suites.audit import insert

BARE = "bare grpc.aio echo"
BEHIND_ENVOY = "bare echo behind Envoy"
DURABLE = "bare echo, two durable records, nothing else"
BEHIND_ASGI = "Envoy, ASGI server, bare echo"
CONCURRENCIES = (1, 16, 64, 128)


def run(stage: Stage) -> Iterator[Row]:
    """Measure each floor at each concurrency."""
    with fronted(stage) as front, durable(stage) as (evidenced, keeping):
        for at in CONCURRENCIES:
            pids = [stage.floor_pid]
            bare = offer("floor", BARE, stage.floor(ECHO), MESSAGE, concurrency=at, pids=pids, seconds=2.5)
            yield bare
            row = offer("floor", DURABLE, evidenced, MESSAGE, concurrency=at, pids=keeping, seconds=2.5)
            yield row.against(bare)
            target, taking_part = front.grpc()
            row = offer("floor", BEHIND_ENVOY, target, MESSAGE, concurrency=at, pids=taking_part, seconds=2.5)
            yield row.against(bare)
            target, taking_part = front.json()
            row = offer("floor", BEHIND_ASGI, target, ENTRY, concurrency=at, pids=taking_part, seconds=2.5)
            yield row.against(bare)
    with psycopg.connect(stage.database(), autocommit=True) as connection:
        connection.execute(FLOOR)
    yield insert(stage, "floor", writers=1)
