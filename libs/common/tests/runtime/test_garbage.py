"""Full collections wait for quiet moments, and not for ever."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest

from libs.common.runtime.garbage import (
    LONGEST_DELAY_SECONDS,
    QUIET_BLOCKS,
    SHORTEST_DELAY_SECONDS,
    FullCollections,
)

MANY_LISTS = """
import gc
from libs.common.runtime.garbage import FullCollections, freeze_startup_objects
freeze_startup_objects()
before = gc.get_stats()[2]["collections"]
alive = [[] for _ in range(500_000)]
amid = gc.get_stats()[2]["collections"]
collections = FullCollections(now=iter((0, 60, 60)).__next__)
alive.clear()
collections.collect_if_due()
print(amid - before, gc.get_stats()[2]["collections"] - amid)
"""


class Cycle:
    def __init__(self) -> None:
        self.own = self


class Process:
    """The blocks that a process has allocated, and its clock."""

    def __init__(self) -> None:
        self.allocated, self.time = 1_000, 0.0
        self.collections = FullCollections(lambda: self.allocated, lambda: self.time)
        self.time = SHORTEST_DELAY_SECONDS


@pytest.fixture
def due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, 10))


@pytest.fixture
def process() -> Process:
    return Process()


def test_nothing_is_collected_before_it_is_due(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, 9))
    assert not process.collections.collect_if_due()


@pytest.mark.usefixtures("due")
def test_a_cycle_is_collected_in_a_quiet_moment(process: Process) -> None:
    cycle = Cycle()
    reference = weakref.ref(cycle)
    del cycle
    assert process.collections.collect_if_due()
    assert reference() is None


@pytest.mark.usefixtures("due")
def test_a_collection_waits_until_large_data_is_released(process: Process) -> None:
    process.allocated += QUIET_BLOCKS + 1
    assert not process.collections.collect_if_due()
    process.allocated -= 1
    assert process.collections.collect_if_due()


@pytest.mark.usefixtures("due")
def test_data_that_stays_delays_a_collection_once_and_not_for_ever(process: Process) -> None:
    process.allocated += QUIET_BLOCKS * 2
    process.time = LONGEST_DELAY_SECONDS - 1
    assert not process.collections.collect_if_due()
    process.time = LONGEST_DELAY_SECONDS
    assert process.collections.collect_if_due()
    process.time += SHORTEST_DELAY_SECONDS
    assert process.collections.collect_if_due()


@pytest.mark.usefixtures("due")
def test_collections_keep_a_distance(process: Process) -> None:
    assert process.collections.collect_if_due()
    process.time += SHORTEST_DELAY_SECONDS - 1
    assert not process.collections.collect_if_due()
    process.time += 1
    assert process.collections.collect_if_due()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the interpreter spreads full collections itself")
def test_large_data_causes_no_full_collection_while_it_is_made() -> None:
    ran = subprocess.run([sys.executable, "-c", MANY_LISTS], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["0", "1"]
