"""Circuits as operators see them: those of two executors over one store, and those of one that decides alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from libs.common.ids import new_id
from libs.common.telemetry.log import Log
from libs.common.testing.clock import ManualClock
from services.executor.adapters.circuits.shared_circuits import SharedCircuits
from services.executor.adapters.circuits.stored_circuit import read_circuit
from services.executor.adapters.circuits.valkey_circuits import ValkeyCircuits
from services.executor.domain.resilience.circuit import CallOutcome, CircuitConfig, CircuitState, Transition
from services.executor.domain.resilience.list_circuits import CircuitView
from tests.harness.stores import free_port

CONFIG = CircuitConfig(failures=3, window=60.0, open_seconds=30.0)
LOG = Log("test", level="error")
OPENED, TRIED = (
    Transition(CircuitState.CLOSED, CircuitState.OPEN),
    Transition(CircuitState.OPEN, CircuitState.HALF_OPEN),
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def executors(valkey_url: str, clock: ManualClock) -> AsyncIterator[list[SharedCircuits]]:
    made = [
        SharedCircuits(ValkeyCircuits(valkey_url, clock=clock, seconds=60.0), clock, LOG, lambda *change: None)
        for _ in range(2)
    ]
    yield made
    for each in made:
        await each.close()


@pytest.fixture
def namespace() -> str:
    return f"n{new_id()}"


async def call(circuits: SharedCircuits, name: str, outcome: CallOutcome) -> None:
    await circuits.report(name, CONFIG, await circuits.admit(name, CONFIG), outcome)


async def only(circuits: SharedCircuits, namespace: str) -> CircuitView:
    [view] = await circuits.find(namespace, after="", limit=10)
    return view


async def test_each_executor_shows_what_the_other_has_seen(
    executors: list[SharedCircuits], clock: ManualClock, namespace: str
) -> None:
    one, two = executors
    name = f"{namespace}/shop:443"
    await call(one, name, CallOutcome.SUCCESS)
    await call(one, name, CallOutcome.FAILURE)
    await call(two, name, CallOutcome.SLOW)
    for each in executors:
        shown = await only(each, namespace)
        assert (shown.name, shown.state, shown.since, shown.shared) == (name, CircuitState.CLOSED, None, True)
        assert (shown.calls, shown.failed, shown.slow) == (3, 1, 1)
    # The window moves on.
    clock.advance(CONFIG.window)
    assert (await only(one, namespace)).calls == 0


async def test_an_open_circuit_shows_since_when_until_when_and_its_last_changes(
    executors: list[SharedCircuits], clock: ManualClock, namespace: str
) -> None:
    one, two = executors
    name, opened = f"{namespace}/shop:443", clock.now()
    for _ in range(3):
        await call(one, name, CallOutcome.FAILURE)
    shown = await only(two, namespace)
    assert (shown.state, shown.since) == (CircuitState.OPEN, opened)
    assert shown.retry_at == opened + timedelta(seconds=30)
    assert [tuple(each) for each in shown.changes] == [(opened, OPENED)]

    clock.advance(30.0)
    assert (await two.admit(name, CONFIG)).admitted
    shown = await only(one, namespace)
    assert (shown.state, shown.since, shown.retry_at) == (CircuitState.HALF_OPEN, clock.now(), None)
    assert [each.change for each in shown.changes] == [TRIED, OPENED]


async def test_only_the_last_changes_are_remembered(
    executors: list[SharedCircuits], clock: ManualClock, namespace: str
) -> None:
    one, _ = executors
    name = f"{namespace}/shop:443"
    for _ in range(3):
        await call(one, name, CallOutcome.FAILURE)
    for _ in range(6):
        # Each try fails: half open and open again.
        clock.advance(30.0)
        await call(one, name, CallOutcome.FAILURE)
    changes = (await only(one, namespace)).changes
    assert len(changes) == 10
    assert changes[0] == (clock.now(), Transition(CircuitState.HALF_OPEN, CircuitState.OPEN))


async def test_limits_are_shown_until_they_end(
    executors: list[SharedCircuits], clock: ManualClock, namespace: str
) -> None:
    one, two = executors
    name = f"{namespace}/shop:443"
    await one.limit(name, "tenant acme", 20.0)
    await two.limit(name, "tenant bolt", 90.0)
    shown = await only(two, namespace)
    limits = {each.party: each.until - clock.now() for each in shown.limits}
    assert limits == {"tenant acme": timedelta(seconds=20), "tenant bolt": timedelta(seconds=90)}
    clock.advance(30.0)
    assert [each.party for each in (await only(one, namespace)).limits] == ["tenant bolt"]


async def test_circuits_of_a_namespace_are_listed_in_order_and_no_others(
    executors: list[SharedCircuits], namespace: str
) -> None:
    one, _ = executors
    for name in (f"{namespace}/c", f"{namespace}/a", f"{namespace}/b", f"{namespace}x/a"):
        await call(one, name, CallOutcome.SUCCESS)
    assert [each.name for each in await one.find(namespace, after="", limit=2)] == [f"{namespace}/a", f"{namespace}/b"]
    assert [each.name for each in await one.find(namespace, after=f"{namespace}/b", limit=2)] == [f"{namespace}/c"]


async def test_what_calls_did_not_use_for_a_week_is_forgotten(
    executors: list[SharedCircuits], clock: ManualClock, namespace: str
) -> None:
    one, _ = executors
    await call(one, f"{namespace}/old", CallOutcome.SUCCESS)
    clock.advance(7 * 86400.0 + 1.0)
    await call(one, f"{namespace}/new", CallOutcome.SUCCESS)
    assert (await only(one, namespace)).name == f"{namespace}/new"


async def test_an_executor_without_its_store_shows_its_own(clock: ManualClock, namespace: str) -> None:
    alone = SharedCircuits(ValkeyCircuits(f"redis://127.0.0.1:{free_port()}/0"), clock, LOG, lambda *change: None)
    name, opened = f"{namespace}/shop:443", clock.now()
    await call(alone, name, CallOutcome.SUCCESS)
    await alone.limit(name, "tenant acme", 20.0)
    shown = await only(alone, namespace)
    assert (shown.state, shown.since, shown.calls, shown.shared) == (CircuitState.CLOSED, None, 1, False)
    assert [(each.party, each.until - clock.now()) for each in shown.limits] == [("tenant acme", timedelta(seconds=20))]
    for _ in range(3):
        await call(alone, name, CallOutcome.FAILURE)
    clock.advance(5.0)
    shown = await only(alone, namespace)
    assert (shown.state, shown.since) == (CircuitState.OPEN, opened)
    await alone.close()


def test_a_circuit_without_a_document_is_closed() -> None:
    shown = read_circuit("shop/a", None, None, [], 0)
    assert (shown.state, shown.calls, shown.changes, shown.limits) == (CircuitState.CLOSED, 0, (), ())
