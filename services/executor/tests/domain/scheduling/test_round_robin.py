"""Tenants take turns, and within a tenant its subjects do."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from services.executor.domain.scheduling import round_robin
from services.executor.domain.scheduling.round_robin import RoundRobin


class Call(NamedTuple):
    number: int
    tenant: str
    subject: str = "ada"


def order(turns: RoundRobin, *calls: Call) -> list[int]:
    return [call.number for call in turns.order(calls)]


def test_an_empty_queue_has_no_order() -> None:
    assert order(RoundRobin()) == []


def test_calls_of_one_subject_keep_their_rank() -> None:
    assert order(RoundRobin(), Call(3, "a"), Call(1, "a"), Call(2, "a")) == [1, 2, 3]


def test_tenants_take_turns_however_many_calls_one_has() -> None:
    assert order(RoundRobin(), Call(1, "a"), Call(2, "a"), Call(3, "a"), Call(4, "b"), Call(5, "b")) == [1, 4, 2, 5, 3]


def test_subjects_share_the_turns_of_their_tenant() -> None:
    calls = [Call(1, "a", "x"), Call(2, "a", "x"), Call(3, "a", "y"), Call(4, "b", "z"), Call(5, "b", "z")]
    assert order(RoundRobin(), *calls) == [1, 4, 3, 5, 2]


def test_the_tenant_that_was_served_last_comes_last() -> None:
    turns = RoundRobin()
    turns.serve(Call(0, "a"))
    assert order(turns, Call(1, "a"), Call(2, "b")) == [2, 1]
    turns.serve(Call(2, "b"))
    assert order(turns, Call(1, "a"), Call(3, "b")) == [1, 3]


def test_the_memory_is_bounded_and_forgets_who_was_served_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_robin, "_MAX_REMEMBERED", 4)
    turns = RoundRobin()
    for tenant in "abc":
        turns.serve(Call(0, tenant))
    assert len(turns._served) == 4
    assert order(turns, Call(1, "c"), Call(2, "b"), Call(3, "a")) == [3, 2, 1]
