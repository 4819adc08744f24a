"""Circuits while their store is away and when it is back, and the records of their changes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.json.jsonio import parse
from libs.common.telemetry.log import Log
from libs.common.testing.clock import ManualClock
from services.executor.adapters.audit.record_encoder import decode_fragment
from services.executor.adapters.circuits.recent_changes import RecentChanges
from services.executor.adapters.circuits.shared_circuits import SharedCircuits
from services.executor.adapters.circuits.transition_records import TransitionRecords
from services.executor.adapters.circuits.valkey_circuits import ValkeyCircuits
from services.executor.domain.model import EncodedRecord
from services.executor.domain.resilience.circuit import CallOutcome, CircuitConfig, CircuitState, Transition
from tests.harness.stores import free_port

CONFIG = CircuitConfig(failures=2)


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(log_file: Path) -> Log:
    return Log("executor", descriptor=os.open(log_file, os.O_WRONLY | os.O_CREAT))


def count_lines(log: Log, file: Path, text: str) -> int:
    log.flush()
    return file.read_text().count(text)


async def fail(circuits: SharedCircuits, name: str) -> None:
    admission = await circuits.admit(name, CONFIG)
    await circuits.report(name, CONFIG, admission, CallOutcome.FAILURE)


async def test_two_executors_share_a_circuit(valkey_url: str, log: Log) -> None:
    changes: list[tuple[str, Transition, bool]] = []
    one, two = (
        SharedCircuits(
            ValkeyCircuits(valkey_url, seconds=60.0), ManualClock(), log, lambda *change: changes.append(change)
        )
        for _ in range(2)
    )
    name = new_id()
    await fail(one, name)
    await fail(two, name)
    assert [(await each.admit(name, CONFIG)).admitted for each in (one, two)] == [False, False]
    # One change, seen once.
    assert changes == [(name, Transition(CircuitState.CLOSED, CircuitState.OPEN), True)]
    await one.close()
    await two.close()


async def test_without_its_store_an_executor_decides_alone_and_says_so(
    valkey_url: str, log: Log, log_file: Path
) -> None:
    clock, changes = ManualClock(), list[tuple[str, Transition, bool]]()
    store = ValkeyCircuits(f"redis://127.0.0.1:{free_port()}/0")
    circuits = SharedCircuits(store, clock, log, lambda *change: changes.append(change))
    name = new_id()
    await fail(circuits, name)
    await fail(circuits, name)
    refused = await circuits.admit(name, CONFIG)
    assert (refused.admitted, refused.shared) == (False, False)
    assert changes == [(name, Transition(CircuitState.CLOSED, CircuitState.OPEN), False)]
    # The store is back, and knows nothing of what happened meanwhile.
    circuits._store = ValkeyCircuits(valkey_url, seconds=60.0)
    assert not (await circuits.admit(name, CONFIG)).shared
    clock.advance(6.0)
    again = await circuits.admit(name, CONFIG)
    assert (again.admitted, again.shared) == (True, True)
    circuits.abandon(name, CONFIG, again)
    await circuits.close()
    await store.close()
    assert [count_lines(log, log_file, text) for text in ("decides alone", "shared again")] == [1, 1]


async def test_changes_are_remembered_with_the_time_after_which_the_service_is_tried_again(log: Log) -> None:
    clock = ManualClock()
    recent = RecentChanges(clock)
    store = ValkeyCircuits(f"redis://127.0.0.1:{free_port()}/0")
    circuits = SharedCircuits(store, clock, log, lambda *change: None, recent)
    await fail(circuits, "acme/a")
    assert list(recent.current()) == []
    await fail(circuits, "acme/a")
    assert [(change.name, change.state) for change in recent.current()] == [("acme/a", CircuitState.OPEN)]
    clock.advance(CONFIG.open_seconds)
    assert [change.state for change in recent.current()] == [CircuitState.HALF_OPEN]
    await circuits.close()


async def test_the_circuit_of_one_party_is_not_announced(log: Log) -> None:
    clock, changes = ManualClock(), list[str]()
    recent = RecentChanges(clock)
    store = ValkeyCircuits(f"redis://127.0.0.1:{free_port()}/0")
    circuits = SharedCircuits(store, clock, log, lambda name, *_: changes.append(name), recent)
    private = replace(CONFIG, private=True)
    for _ in range(CONFIG.failures):
        admission = await circuits.admit("acme/a/tenant%20b", private)
        await circuits.report("acme/a/tenant%20b", private, admission, CallOutcome.FAILURE)
    assert changes == ["acme/a/tenant%20b"]
    assert list(recent.current()) == []
    await circuits.half_open("acme", private)
    assert len(changes) == 2
    assert list(recent.current()) == []
    await circuits.close()


@pytest.mark.parametrize("is_away", [False, True])
async def test_the_circuits_of_a_namespace_are_half_opened_together_and_their_changes_are_seen(
    valkey_url: str, log: Log, is_away: bool
) -> None:
    changes, heard = list[tuple[str, Transition, bool]](), list[str]()
    store = ValkeyCircuits(f"redis://127.0.0.1:{free_port()}/0" if is_away else valkey_url, seconds=60.0)
    circuits = SharedCircuits(store, ManualClock(), log, lambda *change: changes.append(change))
    circuits.listen(lambda name, transition: heard.append(f"{name} {transition.after}"))
    namespace = new_id()
    for service in ("a", "a", "b", "b", "c"):
        await fail(circuits, f"{namespace}/{service}")
    await fail(circuits, f"{namespace}x/a")
    await fail(circuits, f"{namespace}x/a")
    opened, changes[:], heard[:] = len(changes), [], []
    await circuits.half_open(namespace, CONFIG)
    half_open = Transition(CircuitState.OPEN, CircuitState.HALF_OPEN)
    assert opened == 3
    assert sorted(changes) == [(f"{namespace}/{service}", half_open, not is_away) for service in "ab"]
    assert sorted(heard) == [f"{namespace}/{service} half_open" for service in "ab"]
    admitted = {name: (await circuits.admit(name, CONFIG)).admitted for name in (f"{namespace}/a", f"{namespace}x/a")}
    assert list(admitted.values()) == [True, False]
    await circuits.close()


async def test_a_limited_party_waits_at_every_executor_and_alone(valkey_url: str, log: Log) -> None:
    one, two = (
        SharedCircuits(ValkeyCircuits(valkey_url, seconds=60.0), ManualClock(), log, lambda *change: None)
        for _ in range(2)
    )
    name = new_id()
    await one.limit(name, "tenant a/b", 3600.0)
    for each in (one, two):
        refused = await each.admit(name, CONFIG, "tenant a/b")
        assert (refused.admitted, refused.limited, 0 < refused.wait <= 3600) == (False, True, True)
        assert (await each.admit(name, CONFIG, "tenant a")).admitted
        assert (await each.admit(new_id(), CONFIG, "tenant a/b")).admitted
    await one.close()
    await two.close()


async def test_without_its_store_an_executor_keeps_the_limits_that_it_knows(log: Log) -> None:
    clock = ManualClock()
    circuits = SharedCircuits(ValkeyCircuits(f"redis://127.0.0.1:{free_port()}/0"), clock, log, lambda *change: None)
    name = new_id()
    await circuits.limit(name, "a", 30.0)
    refused = await circuits.admit(name, CONFIG, "a")
    assert (refused.admitted, refused.limited, refused.shared, refused.wait) == (False, True, False, 30.0)
    assert (await circuits.admit(name, CONFIG, "b")).admitted
    clock.advance(30.0)
    assert (await circuits.admit(name, CONFIG, "a")).admitted
    await circuits.close()


class Trail:
    def __init__(self) -> None:
        self.records: list[EncodedRecord] = []

    async def restore(self, record: EncodedRecord, *, within: float) -> None:
        self.records.append(record)
        if len(self.records) > 1:
            raise MeshError(Reason.AUDIT_UNAVAILABLE)


async def test_a_change_is_recorded_as_an_act_of_the_executor(log: Log, log_file: Path) -> None:
    trail = Trail()
    records = TransitionRecords(trail, ManualClock(), log)  # type: ignore[arg-type]
    records.record("acme/https://api.example.com", Transition(CircuitState.CLOSED, CircuitState.OPEN), True)
    records.record("acme/https://api.example.com", Transition(CircuitState.OPEN, CircuitState.HALF_OPEN), True)
    await records.stop()
    form = parse(decode_fragment(trail.records[0].encoded))
    assert isinstance(form, dict)
    assert (form["event_class"], form["writer"]) == ("circuit_changed", "executor")
    assert form["act"] == {"resource": "circuits/acme/https://api.example.com"}
    assert (form["previous_state"], form["state"]) == ("closed", "open")
    assert "caller" not in form
    assert count_lines(log, log_file, "not recorded") == 1
