"""Calls by stubs: what they send, and which of them count."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from bench.load.generator import STAMP, Body, Target, UnansweredError
from bench.load.stubs import Waits, ask, middle_pair, stamped
from bench.report.measurement import Row
from localmesh.state.certificates import Pki


def test_where_a_payload_holds_the_stamp_each_call_sends_a_number_of_its_own() -> None:
    payload = b"\x0a\x27" + STAMP.encode() + b"rest"
    sent = [stamped(payload) for _ in range(100)]
    assert len(set(sent)) == 100
    assert {len(each) for each in sent} == {len(payload)}
    assert all(each.startswith(b"\x0a\x27") and each.endswith(b"rest") for each in sent)
    assert stamped(b"without") == b"without"


def test_calls_that_began_while_it_was_warming_up_are_counted_but_not_measured() -> None:
    waits = Waits(warm=1000.0, seconds=1.0)
    over, now = waits.begin(), time.perf_counter()
    assert not over()
    waits.add(now + 999, now + 1002)
    waits.add(now + 1001, now + 1003)
    assert (waits.calls, [round(each) for each in waits.measured]) == (2, [2])


def test_of_several_turns_the_one_in_the_middle_counts_with_its_own_floor() -> None:
    pairs = [
        (Row("s", "floor", p50_ms=floor), Row("s", "case", p50_ms=case)) for floor, case in ((1, 9), (2, 3), (4, 8))
    ]
    assert middle_pair(pairs) is pairs[2]


@pytest.fixture
def serve(pki: Pki) -> Iterator[Callable[[Any], Target]]:
    """Return a function that starts a server with one method and returns what to call it by."""
    with ExitStack() as stack:

        def start(answer: Any) -> Target:
            server = stack.enter_context(futures.ThreadPoolExecutor(2))
            serving = grpc.server(server)
            methods = {"Method": grpc.unary_unary_rpc_method_handler(answer)}  # type: ignore[var-annotated]
            serving.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Test", methods),))
            own = pki.of("executor")
            pair = (own.key.read_bytes(), own.cert.read_bytes())
            port = serving.add_secure_port(
                "127.0.0.1:0", grpc.ssl_server_credentials([pair], pki.ca.read_bytes(), require_client_auth=True)
            )
            serving.start()
            stack.callback(lambda: serving.stop(None).wait())
            return Target(f"h2://127.0.0.1:{port}", "/bench.Test/Method", pki=pki.ca.parent, authority="executor")

        yield start


def test_what_is_answered_is_measured(serve: Callable[[Any], Target]) -> None:
    row = ask("s", "case", serve(lambda request, context: b""), [Body(b"")], concurrency=2, seconds=0.2, warm=0.0)
    assert row.rps > 0
    assert row.p50_ms <= row.p99_ms


def test_a_call_that_fails_gives_the_suite_up_and_not_the_run(serve: Callable[[Any], Target]) -> None:
    def refused(request: Any, context: Any) -> bytes:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no")
        return b""

    with pytest.raises(UnansweredError):
        ask("s", "case", serve(refused), [Body(b"")], concurrency=1, seconds=0.2, warm=0.0)


def test_where_no_call_counts_nothing_was_measured(serve: Callable[[Any], Target]) -> None:
    """No time at all: whatever began was warming up."""
    with pytest.raises(UnansweredError):
        ask("s", "case", serve(lambda request, context: b""), [Body(b"")], concurrency=1, seconds=0.0, warm=0.05)
