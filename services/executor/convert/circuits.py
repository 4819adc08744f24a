"""Converts messages of CircuitService. Pure."""

from __future__ import annotations

from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1 import circuit_pb2 as pb

from services.executor.domain.resilience.circuit import CircuitState
from services.executor.domain.resilience.list_circuits import CircuitView, PastTransition

_STATES = {state: pb.CircuitState.Value(f"CIRCUIT_STATE_{state.name}") for state in CircuitState}


def circuit_message(view: CircuitView) -> pb.Circuit:
    """Return a circuit as its message."""
    return pb.Circuit(
        name=f"circuits/{view.name}",
        state=_state(view.state),
        state_time=_timestamp(view.since),
        retry_time=_timestamp(view.retry_at),
        calls=view.calls,
        failed_calls=view.failed,
        slow_calls=view.slow,
        shared=view.shared,
        transitions=map(_transition, view.changes),
        rate_limits=[pb.ServiceRateLimit(party=each.party, end_time=_timestamp(each.until)) for each in view.limits],
    )


def _transition(past: PastTransition) -> pb.CircuitTransition:
    before, after = (_state(each) for each in past.change)
    return pb.CircuitTransition(time=_timestamp(past.at), before=before, after=after)


def _state(state: CircuitState) -> pb.CircuitState.ValueType:
    return pb.CircuitState.ValueType(_STATES[state])


def _timestamp(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    timestamp = Timestamp()
    timestamp.FromDatetime(moment)
    return timestamp
