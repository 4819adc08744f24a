"""Durable evidence against a plain INSERT and COMMIT: how many records a second, how long one waits, and what it
weighs. Whether any of that
changes as the log grows is the business of the suite about growth."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg

from bench.environment.machine import cpu_seconds
from bench.environment.mesh import Stage
from bench.load.append_records import FLOOR
from bench.load.generator import SPAN, in_turns
from bench.report.measurement import Row

WRITERS = 64
BATCH = 64
# A full run takes the log to a million records; a shorter one says so.
GROWN = int(os.environ.get("BENCH_GROWN_RECORDS", "1000000"))


def run(stage: Stage) -> Iterator[Row]:
    """Measure throughput, waiting time and weight."""
    with psycopg.connect(stage.database(), autocommit=True) as connection:
        connection.execute(FLOOR)
        alone, many = in_turns(
            partial(insert, stage, "audit", writers=1, seconds=2.0 * SPAN),
            partial(
                append, stage, f"durable append in batches of {BATCH}", writers=WRITERS, batch=BATCH, seconds=2.5 * SPAN
            ),
            rounds=5,
            by="rps",
        )
        yield alone
        yield many.against(alone).aimed("rps", ">=", 10)
        crowd = insert(stage, "audit", writers=WRITERS)
        yield crowd
        yield dataclasses.replace(many, case=f"{many.case}, against as many INSERTs at once").against(crowd)
        yield _database_alone(stage).against(alone)
        yield append(stage, "one record, acknowledged", writers=1, batch=1).against(alone)
        yield _weight(connection)


def insert(stage: Stage, suite: str, *, writers: int, seconds: float = 5.0) -> Row:
    """What PostgreSQL does by itself: every row its own INSERT and COMMIT."""
    row = _measure(
        stage,
        "INSERT and COMMIT, one row each",
        ["insert", stage.database()],
        ["postgres"],
        writers=writers,
        seconds=seconds,
    )
    return dataclasses.replace(row, suite=suite)


def append(stage: Stage, case: str, *, writers: int, batch: int, records: int = 0, seconds: float = 5.0) -> Row:
    """Append for so long, or so many records, from as many streams as there are writers."""
    way = ["append", stage.parts["audit"][0], "--pki", str(stage.pki), "--batch", str(batch), "--records", str(records)]
    return _measure(stage, case, way, ["audit", "postgres"], writers=writers, seconds=seconds)


def _database_alone(stage: Stage) -> Row:
    """The most that any log could append with this statement: what PostgreSQL has to do, and nothing of what the
    service does."""
    return _measure(
        stage, "the log's own statement, without the log", ["commit", stage.database()], ["postgres"], writers=1
    )


def _measure(stage: Stage, case: str, way: list[str], parts: list[str], *, writers: int, seconds: float = 5.0) -> Row:
    before = cpu_seconds(stage.pids(*parts))
    command = [
        sys.executable,
        "-m",
        "bench.load.append_records",
        *way,
        "--writers",
        str(writers),
        "--seconds",
        str(seconds),
    ]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    used = cpu_seconds(stage.pids(*parts)) - before
    rate = found["records"] / found["seconds"]
    waits = {name: found[name] for name in ("p50_ms", "p95_ms", "p99_ms")}
    return Row(
        "audit", case, writers, round(rate, 1), cpu_us_per_call=round(used / max(1, found["records"]) * 1e6, 1), **waits
    )


def _weight(connection: psycopg.Connection[Any]) -> Row:
    """What a record weighs on disk, with its indexes, and how much of it is the record itself."""
    size = "select sum(pg_total_relation_size(relid)) from pg_partition_tree('audit.records')"
    [total] = connection.execute(size).fetchone() or (0,)
    [count, canonical] = connection.execute(
        "select count(*), sum(length(canonical)) from audit.records"
    ).fetchone() or (1, 0)
    more = {"bytes": round(int(total) / count), "of which hashed": round(int(canonical) / count)}
    return Row("audit", "a record on disk, with indexes", more=more)


def _size(connection: psycopg.Connection[Any]) -> int:
    [count] = connection.execute("select count(*) from audit.records").fetchone() or (0,)
    return int(count)


def fill(stage: Stage, connection: psycopg.Connection[Any], size: int) -> None:
    """Append until the log holds so many records."""
    missing = size - _size(connection)
    if missing > 0:
        append(stage, "fill", writers=16, batch=500, records=missing, seconds=600)
