"""One contract for both circuits: the one in this process and the one that all executors share in Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.common.ids import new_id
from libs.common.testing.clock import ManualClock
from services.executor.adapters.circuits.valkey_circuits import ValkeyCircuits
from services.executor.domain.resilience.circuit import Admission, CallOutcome, Circuit, CircuitConfig, CircuitState

CONFIG = CircuitConfig(failures=4, open_seconds=30.0, successes=2)
SUCCESS, FAILURE, SLOW, NONE = CallOutcome.SUCCESS, CallOutcome.FAILURE, CallOutcome.SLOW, CallOutcome.NONE


class Subject(Protocol):
    """A circuit whose clock the test moves."""

    clock: ManualClock

    async def admit(self, config: CircuitConfig = CONFIG) -> Admission: ...

    async def report(self, admission: Admission, outcome: CallOutcome, config: CircuitConfig = CONFIG) -> str: ...

    async def half_open(self) -> list[str]: ...


class OwnCircuit:
    def __init__(self) -> None:
        self.clock, self._circuit = ManualClock(), Circuit()

    async def admit(self, config: CircuitConfig = CONFIG) -> Admission:
        return self._circuit.admit(config, self.clock.now().timestamp())

    async def report(self, admission: Admission, outcome: CallOutcome, config: CircuitConfig = CONFIG) -> str:
        transition = self._circuit.report(config, admission.generation, outcome, self.clock.now().timestamp())
        return transition.after if transition else ""

    async def half_open(self) -> list[str]:
        transition = self._circuit.half_open(self.clock.now().timestamp())
        return [transition.after] if transition else []


class SharedCircuit:
    """Two clients of one store, in turn: two executors."""

    def __init__(self, url: str) -> None:
        self._namespace, self.clock, self._turn = new_id(), ManualClock(), 0
        self._name = f"{self._namespace}/a"
        self.clients = [ValkeyCircuits(url, clock=self.clock, seconds=60.0) for _ in range(2)]

    def _client(self) -> ValkeyCircuits:
        self._turn += 1
        return self.clients[self._turn % 2]

    async def admit(self, config: CircuitConfig = CONFIG) -> Admission:
        return await self._client().admit(self._name, config)

    async def report(self, admission: Admission, outcome: CallOutcome, config: CircuitConfig = CONFIG) -> str:
        transition = await self._client().report(self._name, config, admission.generation, outcome)
        return transition.after if transition else ""

    async def half_open(self) -> list[str]:
        return [transition.after for _, transition in await self._client().half_open(self._namespace)]


@pytest.fixture(params=["own", "shared"])
async def circuit(request: pytest.FixtureRequest, valkey_url: str) -> AsyncIterator[Subject]:
    if request.param == "own":
        yield OwnCircuit()
        return
    shared = SharedCircuit(valkey_url)
    yield shared
    for client in shared.clients:
        await client.close()


async def calls(circuit: Subject, outcomes: list[CallOutcome], config: CircuitConfig = CONFIG) -> list[str]:
    """Make calls one after the other; return the changes."""
    return [await circuit.report(await circuit.admit(config), outcome, config) for outcome in outcomes]


async def opened(circuit: Subject) -> None:
    assert await calls(circuit, [FAILURE] * 4) == ["", "", "", "open"]


async def test_failures_open_it_and_nothing_passes_until_its_time(circuit: Subject) -> None:
    await opened(circuit)
    circuit.clock.advance(29.0)
    refused = await circuit.admit()
    assert not refused.admitted
    assert refused.wait == pytest.approx(1.0)
    circuit.clock.advance(1.0)
    admitted = await circuit.admit()
    assert admitted.admitted
    assert admitted.transition == (CircuitState.OPEN, CircuitState.HALF_OPEN)


async def test_few_failures_among_many_calls_open_nothing(circuit: Subject) -> None:
    assert set(await calls(circuit, [SUCCESS] * 10 + [FAILURE] * 9)) == {""}
    assert await calls(circuit, [FAILURE]) == ["open"]


async def test_failures_leave_with_the_window(circuit: Subject) -> None:
    await calls(circuit, [FAILURE] * 3)
    circuit.clock.advance(61.0)
    assert set(await calls(circuit, [FAILURE] * 3)) == {""}
    circuit.clock.advance(30.0)
    assert await calls(circuit, [FAILURE]) == ["open"]


async def test_slow_calls_open_it_too(circuit: Subject) -> None:
    assert await calls(circuit, [SLOW] * 4) == ["", "", "", "open"]


async def test_slow_calls_below_their_rate_do_not(circuit: Subject) -> None:
    assert set(await calls(circuit, [SUCCESS, SUCCESS, *[SLOW] * 7])) == {""}


async def test_calls_without_an_outcome_count_for_nothing(circuit: Subject) -> None:
    assert set(await calls(circuit, [FAILURE] * 3 + [NONE] * 20)) == {""}
    assert await calls(circuit, [FAILURE]) == ["open"]


async def test_half_open_lets_one_in_ten_pass_over_all_executors(circuit: Subject) -> None:
    await opened(circuit)
    circuit.clock.advance(30.0)
    admissions = [await circuit.admit() for _ in range(500)]
    # The first is the one probe of a service that may be called rarely; its share is then waited for.
    assert sum(each.admitted for each in admissions) == 10
    assert all(sum(each.admitted for each in admissions[:n]) <= max(1, n // 10) for n in range(1, 501))
    config = replace(CONFIG, max_canaries=100)
    more = [await circuit.admit(config) for _ in range(500)]
    assert sum(each.admitted for each in admissions + more) == 100


async def test_successes_close_it_and_a_failure_opens_it_again(circuit: Subject) -> None:
    await opened(circuit)
    circuit.clock.advance(30.0)
    passed = [each for each in [await circuit.admit() for _ in range(40)] if each.admitted]
    assert [await circuit.report(each, SUCCESS) for each in passed[:2]] == ["", "closed"]
    # Late answers of the former state change nothing.
    assert await circuit.report(passed[2], FAILURE) == ""
    await opened(circuit)
    circuit.clock.advance(30.0)
    assert await circuit.report(await circuit.admit(), FAILURE) == "open"
    assert not (await circuit.admit()).admitted


async def test_answers_of_calls_from_before_the_opening_change_nothing(circuit: Subject) -> None:
    early = await circuit.admit()
    await opened(circuit)
    circuit.clock.advance(30.0)
    assert (await circuit.admit()).admitted
    assert await circuit.report(early, FAILURE) == ""
    assert await circuit.report(early, SUCCESS) == ""


async def test_a_service_that_is_known_to_answer_again_is_tried_at_once(circuit: Subject) -> None:
    assert await circuit.half_open() == []
    await opened(circuit)
    assert await circuit.half_open() == ["half_open"]
    # Nothing is left to half-open, and the canaries are the usual ones.
    assert await circuit.half_open() == []
    first, *others = [await circuit.admit() for _ in range(10)]
    assert (first.admitted, any(each.admitted for each in others)) == (True, False)
    assert await circuit.report(first, FAILURE) == "open"
    circuit.clock.advance(29.0)
    assert not (await circuit.admit()).admitted
    circuit.clock.advance(1.0)
    assert (await circuit.admit()).admitted


async def test_lost_canaries_do_not_keep_it_half_open_for_ever(circuit: Subject) -> None:
    config = replace(CONFIG, max_canaries=1)
    await opened(circuit)
    circuit.clock.advance(30.0)
    assert (await circuit.admit(config)).admitted
    assert not any([(await circuit.admit(config)).admitted for _ in range(100)])
    circuit.clock.advance(30.0)
    assert (await circuit.admit(config)).admitted


Step = st.tuples(
    st.sampled_from(["admit", "report", "wait", "half_open"]), st.integers(0, 3), st.sampled_from(list(CallOutcome))
)


async def test_both_decide_alike(valkey_url: str) -> None:
    """Any course of calls ends alike in the process and in the store."""
    clients: list[ValkeyCircuits] = []

    async def follow(steps: list[tuple[str, int, CallOutcome]]) -> None:
        own, shared = OwnCircuit(), SharedCircuit(valkey_url)
        clients.extend(shared.clients)
        pending: list[tuple[Admission, Admission]] = []
        for verb, number, outcome in steps:
            if verb == "wait":
                own.clock.advance(7.0 * number)
                shared.clock.advance(7.0 * number)
            elif verb == "admit":
                mine, theirs = await own.admit(), await shared.admit()
                assert mine._replace(wait=0.0) == theirs._replace(wait=0.0, generation=mine.generation)
                assert mine.wait == pytest.approx(theirs.wait, abs=0.01)
                if mine.admitted:
                    pending.append((mine, theirs))
            elif verb == "half_open":
                assert await own.half_open() == await shared.half_open()
            elif pending:
                mine, theirs = pending.pop(number % len(pending))
                assert await own.report(mine, outcome) == await shared.report(theirs, outcome)

    examples: list[list[tuple[str, int, CallOutcome]]] = []

    @settings(max_examples=60, deadline=None, database=None)
    @given(st.lists(Step, max_size=60))
    def collect(steps: list[tuple[str, int, CallOutcome]]) -> None:
        examples.append(steps)

    collect()
    for steps in examples:
        await follow(steps)
    for client in clients:
        await client.close()
