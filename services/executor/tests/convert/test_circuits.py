"""Messages of CircuitService."""

from __future__ import annotations

from datetime import UTC, datetime

from toolmesh.executor.v1 import circuit_pb2 as pb

from services.executor.convert.circuits import circuit_message
from services.executor.domain.resilience.circuit import CircuitState, Transition
from services.executor.domain.resilience.list_circuits import CircuitView, PastTransition, RateLimit

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_circuit_has_all_that_is_known_of_it() -> None:
    change = PastTransition(MOMENT, Transition(CircuitState.HALF_OPEN, CircuitState.OPEN))
    limits = [RateLimit("tenant a", MOMENT)]
    view = CircuitView(
        "shop/a", CircuitState.OPEN, MOMENT, MOMENT, 9, 5, 2, shared=True, changes=[change], limits=limits
    )
    message = circuit_message(view)
    assert (message.name, message.state, message.shared) == ("circuits/shop/a", pb.CIRCUIT_STATE_OPEN, True)
    assert (message.calls, message.failed_calls, message.slow_calls) == (9, 5, 2)
    assert {each.ToDatetime(UTC) for each in (message.state_time, message.retry_time)} == {MOMENT}
    [transition], [limit] = message.transitions, message.rate_limits
    assert (transition.before, transition.after) == (pb.CIRCUIT_STATE_HALF_OPEN, pb.CIRCUIT_STATE_OPEN)
    assert (limit.party, limit.end_time.ToDatetime(UTC)) == ("tenant a", MOMENT)


def test_what_is_not_known_is_not_set() -> None:
    message = circuit_message(CircuitView("shop/a", CircuitState.CLOSED, None, None, 0, 0, 0, shared=False))
    assert not message.HasField("state_time")
    assert not message.HasField("retry_time")
