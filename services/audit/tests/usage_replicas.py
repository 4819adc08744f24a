"""Usage stubs of a running audit service, and its counts as stored in the database."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import orjson
from toolmesh.audit.v1 import usage_service_pb2 as pb
from toolmesh.audit.v1 import usage_service_pb2_grpc as rpc

from libs.common.rpc.client import channel_to
from libs.common.runtime.settings import Address
from services.audit.adapters.usage_tables import DIMENSION_COLUMNS
from services.audit.domain.usage.call import DecodedRecord, Outcome, call_of
from services.audit.domain.usage.cells import Cell, Rollup, cells_of
from services.audit.domain.usage.sketch import Sketch
from services.audit.domain.usage.tally import Tally
from services.audit.tests.database import sql
from services.audit.tests.replicas import Replica
from tests.harness.stores import wait_until


def usage_stub(replica: Replica, pki: Any, name: str) -> Any:
    """Return a usage stub that calls as a peer."""
    identity = pki.of(name)
    files = SimpleNamespace(tls_cert=identity.cert, tls_key=identity.key, tls_ca=pki.ca)
    channel = channel_to("audit", Address("127.0.0.1", replica.application.server.port), files)
    # Closed with the replica: an unreferenced channel closes at once.
    replica._channels.append(channel)
    return rpc.UsageServiceStub(channel)


def counted(url: str) -> int:
    """Return the counting position."""
    [(position,)] = sql(url, "select counted from usage_position")
    return int(position)


async def until_counted(url: str, records: int) -> None:
    """Wait until this many records are counted."""
    await asyncio.to_thread(wait_until, lambda: counted(url) >= records, "the counting of the log")


def stored_cells(url: str) -> dict[Cell, Tally]:
    """Return every cell, decoded independently of the code that wrote it."""
    names = ", ".join((*DIMENSION_COLUMNS, *(outcome.value for outcome in Outcome)))
    rows = sql(
        url,
        f"select rollup, day, {names}, reasons, cost_micros, timed, latency_sum_us,"  # noqa: S608
        " latency_max_us, latency, first_time, last_time from usage_cells",
    )
    cells = {}
    for rollup, day, *rest in rows:
        own, outcomes, others = rest[:5], rest[5:12], rest[12:]
        tally = Tally()
        tally.outcomes.update(dict(zip(Outcome, outcomes, strict=True)))
        tally.reasons.update({int(reason): count for reason, count in others[0].items()})
        tally.cost_micros, tally.timed, tally.latency_sum_us = int(others[1]), others[2], int(others[3])
        tally.latency_max_us, tally.latency = others[4], Sketch.decode(bytes(others[5]))
        tally.first, tally.last = others[6], others[7]
        cells[Cell(Rollup(rollup), day, *own)] = tally
    return cells


def plain_cells(url: str) -> dict[Cell, Tally]:
    """Return the expected cells, counted from scratch over the whole log."""
    cells: dict[Cell, Tally] = {}
    for sequence, canonical, log_time in sql(
        url, "select sequence, canonical, log_time from records order by sequence"
    ):
        call = call_of(DecodedRecord(sequence, orjson.loads(bytes(canonical)) if canonical else None, log_time))
        for cell in cells_of(call) if call else ():
            cells.setdefault(cell, Tally()).add(call)  # type: ignore[arg-type]
    return cells


def top(group: str, order: str = "CALLS", **changes: Any) -> pb.ListTopUsageRequest:
    """Return a request for a ranking."""
    return pb.ListTopUsageRequest(
        group=pb.UsageGroup.Value(f"USAGE_GROUP_{group}"), order=pb.UsageOrder.Value(f"USAGE_ORDER_{order}"), **changes
    )
