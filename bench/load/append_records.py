"""Writers of evidence, in a process of their own: streams of batches to the log, the log's own statement without the
log, or the plain
INSERT and COMMIT they are measured against. Prints one JSON object."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psycopg
import uvloop
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import audit_record_pb2, audit_service_pb2
from toolmesh.common.v1 import caller_pb2

from services.audit.adapters.log.commit import connect, read_head
from services.audit.adapters.log.commit import insert as insert_group
from services.audit.convert.audit import entry_of
from services.audit.domain.log.append_records import GROUP_RECORDS

APPEND = "/toolmesh.audit.v1.AuditService/AppendRecords"
_STAMP = b"STAMP-00000000-0000-0000-000000000000"


def sample(record_id: str) -> audit_record_pb2.AuditRecord:
    """Return an outcome record as the executor writes it for an ordinary call."""
    now = Timestamp()
    now.GetCurrentTime()
    return audit_record_pb2.AuditRecord(
        record_id=record_id,
        event_class=audit_record_pb2.EVENT_CLASS_INVOCATION_SUCCEEDED,
        event_time=now,
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
        invocation_id="01932f3a-7c1e-7000-8000-0000000004d2",
        caller=caller_pb2.Caller(subject="did:web:toolmesh.local:users:bench"),
        tool_version="tools/core.echo/versions/1.0.0",
        tool_digest="sha256:" + "ab" * 32,
        mutation_class="read_only",
        arguments_digest="sha256:" + "cd" * 32,
        arguments_summary=b'{"text":"hello"}',
        result_digest="sha256:" + "ef" * 32,
        authorization=audit_record_pb2.AUTHORIZATION_OUTCOME_ALLOW,
        decision="decisions/01932f3a-7c1e-7000-8000-0000000004d3",
        determining_policies=["read-only-is-free"],
        policy_set_version="1",
        status=audit_record_pb2.RECORD_STATUS_SUCCESS,
        state="succeeded",
        previous_state="running",
        attempt=1,
        executor_id="executor-1",
    )


class Batches:
    """Batches whose records have ids of their own, in their canonical form, as the executor sends them. Only the ids
    are written
    anew: building every record from its fields would make the writer the bottleneck."""

    def __init__(self, size: int, writer: int) -> None:
        form = entry_of(sample(_STAMP.decode()), "executor").canonical
        message = audit_service_pb2.AppendRecordsRequest(batch=1, canonical_records=[form] * size)
        message.ClearField("batch")
        self._parts = message.SerializeToString().split(_STAMP)
        self._prefix = f"{os.getpid():07d}-{writer:04d}-{time.time_ns() % 10**9:09d}"
        self._turn = 0
        self._batch = 0

    def next(self) -> bytes:
        """Return the next batch as bytes."""
        self._batch += 1
        text = bytearray(audit_service_pb2.AppendRecordsRequest(batch=self._batch).SerializeToString())
        for part in self._parts[:-1]:
            self._turn += 1
            text += part
            text += f"{self._prefix}-{self._turn:014d}".encode()
        text += self._parts[-1]
        return bytes(text)


async def _stream(
    channel: grpc.aio.Channel, size: int, writer: int, until: Callable[[], bool], waits: list[float]
) -> int:
    """Send batch after batch, each when the last one was acknowledged; return how many records were."""
    batches, acknowledged = Batches(size, writer), 0
    call: Any = channel.stream_stream(APPEND)()
    while not until():
        begin = time.perf_counter()
        await call.write(batches.next())
        if await call.read() is grpc.aio.EOF:
            raise RuntimeError(f"the log ended the stream: {await call.details()}")
        waits.append(time.perf_counter() - begin)
        acknowledged += size
    await call.done_writing()
    return acknowledged


async def append(options: argparse.Namespace, waits: list[float]) -> tuple[int, float]:
    """Append over as many streams as there are writers; return how many records became durable, in how many seconds."""
    folder = Path(options.pki)
    pair = ((folder / "executor.key").read_bytes(), (folder / "executor.pem").read_bytes())
    credentials = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes(), *pair)
    target = [("grpc.ssl_target_name_override", "audit")]
    async with grpc.aio.secure_channel(options.target, credentials, options=target) as channel:
        await channel.channel_ready()
        begin = time.perf_counter()
        taken = [0]

        def over() -> bool:
            taken[0] += options.batch
            enough = options.records and taken[0] > options.records
            return bool(enough) or time.perf_counter() - begin > options.seconds

        counts = await asyncio.gather(
            *(_stream(channel, options.batch, i, over, waits) for i in range(options.writers))
        )
        return sum(counts), time.perf_counter() - begin


FLOOR = """
drop table if exists bench_floor;
create table bench_floor (like audit.records including defaults including indexes);
alter table bench_floor alter sequence add generated always as identity;
alter table bench_floor add primary key (sequence);
alter table bench_floor add unique (record_id);
"""
_INSERT = """
insert into bench_floor (
    shard, record_id, canonical, leaf_hash, event_time, subject, tool_version, trace_id, invocation_id,
    authz_outcome, status
) values (0, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


def insert(options: argparse.Namespace, waits: list[float]) -> tuple[int, float]:
    """Insert and commit row by row, from as many connections as there are writers: the same record, into a table with
    the
    columns and indexes of the log, without the log."""
    entry = entry_of(sample("x" * 36), "executor")
    rest = [entry.canonical, hashlib.sha256(entry.canonical).digest(), entry.event_time, entry.subject]
    rest += [entry.tool_version, entry.trace_id, entry.invocation_id, entry.authorization, entry.status]
    begin = time.perf_counter()
    counts = [0] * options.writers

    def one(writer: int) -> None:
        with psycopg.connect(options.target, autocommit=True) as connection:
            while time.perf_counter() - begin < options.seconds:
                start = time.perf_counter()
                connection.execute(_INSERT, (f"{os.getpid()}-{writer}-{counts[writer]}", *rest), prepare=True)
                waits.append(time.perf_counter() - start)
                counts[writer] += 1

    threads = [threading.Thread(target=one, args=(i,)) for i in range(options.writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts), time.perf_counter() - begin


def commit(options: argparse.Namespace, waits: list[float]) -> tuple[int, float]:
    """Make the log's commits, as large as it makes them, one after the other and without it: nobody sends the
    records, nobody reads or
    checks them, and only their ids are new."""
    entry, count, begin = entry_of(sample("x" * 36), "executor"), 0, time.perf_counter()
    with connect(options.target) as connection:
        head = read_head(connection)
        while time.perf_counter() - begin < options.seconds:
            entries = [entry._replace(record_id=f"{os.getpid():07d}-{count + n:028d}") for n in range(GROUP_RECORDS)]
            start = time.perf_counter()
            made = insert_group(connection, head, entries)
            waits.append(time.perf_counter() - start)
            if made is None:
                # The log had something to record itself.
                head = read_head(connection)
                continue
            head, count = made[0], count + len(entries)
    return count, time.perf_counter() - begin


_WAYS = {"insert": insert, "commit": commit}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["append", *_WAYS])
    parser.add_argument("target")
    parser.add_argument("--pki", default="")
    parser.add_argument("--writers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--records", type=int, default=0, help="stop after this many; 0 means when the time is over")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    waits: list[float] = []
    if options.way == "append":
        count, seconds = uvloop.run(append(options, waits))
    else:
        count, seconds = _WAYS[options.way](options, waits)
    waits.sort()
    at = {f"p{q}_ms": round(waits[min(len(waits) - 1, len(waits) * q // 100)] * 1000, 3) for q in (50, 95, 99)}
    print(json.dumps({"records": count, "seconds": seconds, **at}))


if __name__ == "__main__":
    main()
