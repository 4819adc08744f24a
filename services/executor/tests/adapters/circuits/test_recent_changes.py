"""The circuits that an executor saw change, as it tells the registry."""

from __future__ import annotations

from libs.common.testing.clock import ManualClock
from services.executor.adapters.circuits.recent_changes import MAX_CIRCUITS, CircuitChange, RecentChanges
from services.executor.domain.resilience.circuit import CircuitState


def test_an_open_circuit_counts_as_half_open_once_its_service_may_be_tried_again() -> None:
    """Without that, a policy that refuses calls of such tools would keep it open for ever."""
    clock = ManualClock()
    changes, start = RecentChanges(clock), clock.now()
    changes.note("acme/a", CircuitState.OPEN, 60.0)
    assert list(changes.current()) == [CircuitChange("acme/a", CircuitState.OPEN, start)]
    clock.advance(60)
    assert list(changes.current()) == [CircuitChange("acme/a", CircuitState.HALF_OPEN, clock.now())]
    clock.advance(899)
    assert [change.state for change in changes.current()] == [CircuitState.HALF_OPEN]
    # It was not called for so long that it is not known to fail.
    clock.advance(1)
    assert list(changes.current()) == []


def test_the_last_change_of_each_circuit_counts_and_listeners_hear_of_all() -> None:
    changes, heard = RecentChanges(ManualClock()), list[int]()
    changes.listen(lambda: heard.append(1))
    changes.note("acme/a", CircuitState.OPEN, 60.0)
    changes.note("acme/a", CircuitState.CLOSED, 60.0)
    changes.note("acme/b", CircuitState.HALF_OPEN, 60.0)
    assert {change.name: change.state for change in changes.current()} == {
        "acme/a": CircuitState.CLOSED,
        "acme/b": CircuitState.HALF_OPEN,
    }
    assert len(heard) == 3


def test_no_more_circuits_are_told_than_an_announcement_holds() -> None:
    changes = RecentChanges(ManualClock())
    for number in range(MAX_CIRCUITS + 1):
        changes.note(f"acme/{number}", CircuitState.OPEN, 60.0)
    assert [change.name for change in changes.current()] == [f"acme/{n}" for n in range(1, MAX_CIRCUITS + 1)]
