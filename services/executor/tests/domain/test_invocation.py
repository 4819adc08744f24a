"""An invocation under way: its phases and its spans."""

from __future__ import annotations

from types import TracebackType

from libs.common.testing.clock import ManualClock
from services.executor.domain.invocation import Invocation, Phases
from services.executor.domain.states import State
from services.executor.tests.samples import a_request


class Span:
    """Notes when it begins and how it ends."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self._name, self._seen = name, seen

    def __enter__(self) -> None:
        self._seen.append(self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seen.append(f"/{self._name} {kind.__name__}" if kind else f"/{self._name}")


def test_phases_are_timed_one_after_another() -> None:
    clock = ManualClock()
    phases = Phases(clock, None)
    phases.begin("validate")
    clock.advance(1.5)
    phases.begin("authorize")
    clock.advance(0.5)
    phases.end()
    phases.end()
    assert phases.durations == [("validate", 1.5), ("authorize", 0.5)]


def test_a_sampled_call_has_a_span_for_each_phase_and_the_last_one_knows_its_error() -> None:
    seen: list[str] = []
    phases = Phases(ManualClock(), lambda name: Span(name, seen))
    phases.begin("validate")
    phases.begin("authorize")
    phases.end(ValueError())
    assert seen == ["validate", "/validate", "authorize", "/authorize ValueError"]


def test_an_invocation_begins_planned_with_an_id_of_its_own() -> None:
    clock = ManualClock()
    first, second = (Invocation(a_request(), clock, None) for _ in range(2))
    assert first.state is State.PLANNED
    assert first.invocation_id != second.invocation_id
    clock.advance(2)
    assert first.elapsed() == 2
