"""The parts of the protocol that need no server."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from toolmesh.common.v1.error_table import ROWS

from libs.common.errors import MeshError, Reason, Violation
from services.gateway.domain.dispatch import dispatch
from services.gateway.domain.model import Entry, InvalidEntry, Request, Response
from services.gateway.domain.parse import parse
from services.gateway.domain.response import error_object, response_body


def request(call_id: int, *, notification: bool = False) -> Request:
    return Request(call_id, "m", {}, notification)


def test_a_null_id_is_a_call_and_an_absent_one_a_notification() -> None:
    with_null = parse(b'{"jsonrpc":"2.0","id":null,"method":"m"}').entries[0]
    without = parse(b'{"jsonrpc":"2.0","method":"m"}').entries[0]
    assert (with_null, without) == (Request(None, "m", {}, False), Request(None, "m", {}, True))


def test_an_unusable_entry_keeps_its_id_and_names_everything_wrong_with_it() -> None:
    entry = parse(b'{"id":"q","method":5,"params":"x"}').entries[0]
    assert isinstance(entry, InvalidEntry)
    assert entry.id == "q"
    assert {v.path for v in entry.error.violations} == {"/jsonrpc", "/method", "/params"}


def test_an_entry_with_an_unusable_id_is_answered_with_null() -> None:
    entry = parse(b'{"jsonrpc":"2.0","id":{},"method":"m"}').entries[0]
    assert isinstance(entry, InvalidEntry)
    assert entry.id is None


def test_a_batch_may_hold_fifty_entries_and_no_more() -> None:
    assert len(parse(orjson.dumps([1] * 50)).entries) == 50
    with pytest.raises(MeshError):
        parse(orjson.dumps([1] * 51))


@pytest.mark.parametrize(
    ("groups", "calls", "accepted"), [(1, 64, True), (2, 32, True), (2, 33, False), (50, 64, False)]
)
def test_the_calls_of_a_batch_are_counted_with_those_of_its_groups(groups: int, calls: int, accepted: bool) -> None:
    group = {"jsonrpc": "2.0", "id": 1, "method": "tools.invoke_group", "params": {"calls": [{"tool": "echo"}] * calls}}
    batch = orjson.dumps([group] * groups)
    if accepted:
        assert len(parse(batch).entries) == groups
        return
    with pytest.raises(MeshError) as caught:
        parse(batch)
    assert (caught.value.reason, caught.value.metadata) == (Reason.INVALID_REQUEST, {"limit_calls": "64"})


def test_a_batch_of_one_stays_a_batch() -> None:
    assert response_body([Response(1, "x")], batch=True, trace_id="") == b'[{"jsonrpc":"2.0","id":1,"result":"x"}]'


def test_a_null_result_is_a_result() -> None:
    assert response_body([Response(1)], batch=False, trace_id="") == b'{"jsonrpc":"2.0","id":1,"result":null}'


@pytest.mark.parametrize("reason", list(Reason))
def test_every_row_of_the_table_makes_an_error_object(reason: Reason) -> None:
    error = error_object(MeshError(reason, violations=[Violation("/a", "r", "m")], retry_after=0.25), "t")
    assert (error["code"], error["data"]["code"]) == (ROWS[reason].jsonrpc_code, ROWS[reason].code)
    assert error["data"]["violations"] == [{"path": "/a", "rule": "r", "message": "m"}]
    assert (error["data"]["retry_after_ms"], error["data"]["trace_id"]) == (250.0, "t")


async def test_answers_keep_the_order_of_entries_whatever_ends_first() -> None:
    turns = [asyncio.Event() for _ in range(3)]

    async def answering(entry: Entry) -> Response | None:
        assert isinstance(entry.id, int)
        await turns[entry.id].wait()
        if entry.id:
            turns[entry.id - 1].set()
        return Response(entry.id)

    turns[2].set()
    entries = [request(n) for n in range(3)]
    assert [a.id for a in await dispatch(entries, answering)] == [0, 1, 2]


async def test_no_more_than_the_bound_run_at_once_and_none_starts_after_the_end_of_interest() -> None:
    started: list[object] = []
    full = asyncio.Event()

    async def answering(entry: Entry) -> Response | None:
        started.append(entry.id)
        if len(started) == 3:
            full.set()
        await asyncio.Event().wait()
        return None

    entries = [request(n) for n in range(10)]
    running = asyncio.create_task(dispatch(entries, answering, concurrency=3))
    await full.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert started == [0, 1, 2]
