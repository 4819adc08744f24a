"""Counts primes in many steps. A run that is interrupted continues with the step after its last checkpoint."""

from __future__ import annotations

from typing import Annotated, TypedDict

from toolmesh_tool import Call, Canceled, Limits, tool


class Census(TypedDict):
    primes: Annotated[int, Limits(ge=0)]
    steps: Annotated[int, Limits(ge=0)]


@tool(
    namespace="samples",
    mutation_class="read_only",
    tier="process",
    timeout_class="async",
    timeout=600,
    memory="128Mi",
    progress=True,
    cancellation=True,
    checkpoint={"micro_interval": "10s", "macro_events": ["census_half"]},
    tags=["numbers"],
    examples=[({"below": 20000, "step": 5000}, {"primes": 2262, "steps": 4})],
    manifest={"observability": {"audit_detail": "summary"}},
)
def count_primes(
    call: Call,
    below: Annotated[int, Limits(ge=0, le=100_000_000)],
    step: Annotated[int, Limits(ge=1000, le=1_000_000)] = 10_000,
) -> Census:
    """Counts the primes below a number, range by range, with progress and checkpoints.

    Args:
        below: The primes below this number are counted.
        step: How many numbers one step checks.
    """
    state = call.resume_state or {"counts": []}
    starts = range(0, below, step)
    try:
        for number in range(len(state["counts"]), len(starts)):
            end = min(starts[number] + step, below)
            count = sum(_is_prime(candidate) for candidate in range(starts[number], end))
            state["counts"].append(count)
            call.checkpoint(state, event="census_half" if 2 * (number + 1) == len(starts) else "")
            call.partial({"from": starts[number], "to": end, "primes": count})
            call.progress(step=number + 1, of=len(starts), message=f"counted to {end}")
    except Canceled:
        call.log(f"stopped after {len(state['counts'])} of {len(starts)} steps", severity="warning")
        raise
    return {"primes": sum(state["counts"]), "steps": len(starts)}


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % factor for factor in range(2, int(number**0.5) + 1))
