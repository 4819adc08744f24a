"""Calls by stubs: what they send, and which of them count."""

from __future__ import annotations

import time

from bench.generator import STAMP
from bench.rows import Row
from bench.stubs import Waits, middle_pair, stamped


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
