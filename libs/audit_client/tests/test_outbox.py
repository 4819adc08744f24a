"""The outbox on a real database: acts reach the log once it is there, in order; refused ones are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import grpc
import grpc.aio
import orjson
import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as rpc

from libs.audit_client.act import Act, ActEncoder, ActKind
from libs.audit_client.outbox import ActDelivery, ActRecorder, act_outbox
from libs.common.errors import MeshError, Reason
from libs.common.sql.engine import engine_for, separately, transaction
from libs.common.telemetry.log import Log

NOW = datetime(2026, 11, 17, tzinfo=UTC)


class ScriptedLog(rpc.AuditServiceServicer):
    """Takes records, or refuses those on a resource, or fails."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.failing = False

    async def AppendRecords(self, request_iterator: Any, context: Any) -> AsyncIterator[pb.AppendRecordsResponse]:
        async for request in request_iterator:
            if self.failing:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "away")
            names = [orjson.loads(form)["act"]["resource"] for form in request.canonical_records]
            refused = [pb.RecordRefusal(index=n, path="act") for n, name in enumerate(names) if name == "bad"]
            self.taken += [name for name in names if name != "bad"]
            yield pb.AppendRecordsResponse(batch=request.batch, refused=refused)


@pytest.fixture
async def engine(database: Callable[[str], str]) -> AsyncIterator[AsyncEngine]:
    engine = engine_for(database("authz"), schema="authz")
    yield engine
    await engine.dispose()


@pytest.fixture
async def log() -> AsyncIterator[tuple[ScriptedLog, grpc.aio.Channel]]:
    server, servicer = grpc.aio.server(options=[("grpc.so_reuseport", 0)]), ScriptedLog()  # type: ignore[abstract]
    rpc.add_AuditServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield servicer, channel
    await server.stop(None)


def an_act(resource: str) -> Act:
    return Act(kind=ActKind.TOKEN_ISSUED, resource=resource, time=NOW)


async def left(engine: AsyncEngine) -> int:
    async with separately(engine) as connection:
        return int(await connection.scalar(select(func.count()).select_from(act_outbox)) or 0)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110  (what is waited for happens in the database)
            await asyncio.sleep(0.01)


async def test_acts_are_delivered_in_order_once_the_log_is_there(engine: AsyncEngine, log: Any) -> None:
    servicer, channel = log
    servicer.failing = True
    recorder = ActRecorder(ActEncoder("authz"))
    names = [f"tokens/{number}" for number in range(250)]
    async with transaction(engine) as connection:
        for name in [*names[:100], "bad", *names[100:]]:
            await connection.execute(recorder.insertion(an_act(name)))
    with pytest.raises(RuntimeError, match="undone"):
        async with transaction(engine) as connection:
            await connection.execute(recorder.insertion(an_act("tokens/undone")))
            raise RuntimeError("undone")
    delivery = ActDelivery(engine, recorder, channel, Log("test", level="error"), limit=200, poll=0.05)
    await delivery.start()
    try:

        async def full() -> bool:
            return recorder.full

        await until(full)
        with pytest.raises(MeshError) as refused:
            recorder.admit()
        assert refused.value.reason is Reason.AUDIT_BACKPRESSURE
        servicer.failing = False

        async def delivered() -> bool:
            return await left(engine) == 1

        await until(delivered)
        assert servicer.taken == names, "each in order, and none of a transaction that was undone"
        async with separately(engine) as connection:
            assert await connection.scalar(select(act_outbox.c.refuse_time)) is not None
        recorder.admit()
    finally:
        await delivery.stop()
