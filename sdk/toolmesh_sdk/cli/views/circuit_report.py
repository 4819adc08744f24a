"""Prints circuits: which endpoints of an upstream are left alone, which rates they limit, and what changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from toolmesh_sdk.cli.views import output
from toolmesh_sdk.cli.views.documents import format_time, message_to_dict

if TYPE_CHECKING:
    from toolmesh.executor.v1 import circuit_pb2 as cpb

_PREFIX, _STATE = "circuits/", "CIRCUIT_STATE_"
_SHOWN_CHANGES = 3


def circuit_documents(circuits: Sequence[cpb.Circuit]) -> list[dict[str, Any]]:
    """Return circuits as JSON."""
    return [message_to_dict(each) for each in circuits]


def print_circuits(circuits: Sequence[cpb.Circuit]) -> None:
    """Print a line for each circuit, then its limits and last changes."""
    if not circuits:
        return
    headings = ("CIRCUIT", "STATE", "SINCE", "FAILED", "SLOW", "CALLS", "NEXT TRY", "DECIDED BY")
    output.print_table(headings, [_row(each) for each in circuits])
    for circuit in circuits:
        for limit in circuit.rate_limits:
            line = f"{_name(circuit)} takes no calls of {limit.party} until {format_time(limit.end_time)}"
            output.out().print(output.text(line))
        for change in circuit.transitions[:_SHOWN_CHANGES]:
            line = f"{_name(circuit)}: {_state(change.before)} -> {_state(change.after)}"
            output.out().print(output.text(line, (f"  {format_time(change.time)}", "dim")))


def _row(circuit: cpb.Circuit) -> tuple[str, ...]:
    return (
        _name(circuit),
        _state(circuit.state),
        format_time(circuit.state_time) if circuit.HasField("state_time") else "",
        str(circuit.failed_calls),
        str(circuit.slow_calls),
        str(circuit.calls),
        format_time(circuit.retry_time) if circuit.HasField("retry_time") else "",
        "all executors" if circuit.shared else "one executor alone",
    )


def _name(circuit: cpb.Circuit) -> str:
    return circuit.name.removeprefix(_PREFIX)


def _state(state: cpb.CircuitState.ValueType) -> str:
    from toolmesh.executor.v1 import circuit_pb2

    return circuit_pb2.CircuitState.Name(state).removeprefix(_STATE).lower()
