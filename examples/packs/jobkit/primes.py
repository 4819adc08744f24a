"""Counts primes in many steps. A run that is interrupted continues with the step after its last checkpoint."""

from toolmesh_tool import Call, Canceled


def census(arguments: dict, call: Call) -> dict:
    """Count the primes below a number, range by range."""
    state = call.resume_state or {"counts": []}
    starts = range(0, arguments["below"], arguments["step"])
    try:
        for number in range(len(state["counts"]), len(starts)):
            end = min(starts[number] + arguments["step"], arguments["below"])
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
