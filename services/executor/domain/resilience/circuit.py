"""Decides when a failing service is left alone: a circuit breaker. Pure.

The Lua script of `adapters/circuits/valkey_circuits.lua` makes the same decisions for all executors together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

SLICES = 10
# While half open, one call in so many is let through.
CANARY_SHARE = 10
# How long a refused caller waits while the circuit is half open, in seconds.
HALF_OPEN_WAIT = 1.0


class CircuitState(StrEnum):
    """The states of a circuit."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CallOutcome(StrEnum):
    """What a call says about its service."""

    SUCCESS = "success"
    FAILURE = "failure"
    SLOW = "slow"
    """A success that took too long."""
    NONE = "none"
    """Nothing: the caller left, or gave the service too little time."""


@dataclass(frozen=True, slots=True)
class CircuitConfig:
    """When a circuit opens and closes. The state is shared; each tool looks at it with its own configuration."""

    failures: int = 5
    failure_rate: float = 0.5
    slow_seconds: float | None = None
    slow_rate: float = 0.8
    window: float = 60.0
    open_seconds: float = 60.0
    successes: int = 3
    max_canaries: int = 10
    private: bool = False
    """True for the circuit of one party's own server: what happens to it says nothing about the calls of others."""

    def opens(self, calls: int, failed: int, slow: int) -> bool:
        """Return whether so many calls of the window open the circuit."""
        too_many = failed >= self.failures and failed >= self.failure_rate * calls
        return too_many or (slow >= self.failures and slow >= self.slow_rate * calls)


class Transition(NamedTuple):
    """A change of state."""

    before: CircuitState
    after: CircuitState


class Admission(NamedTuple):
    """The answer to a call that wants to pass."""

    admitted: bool
    generation: int = 0
    """Of the state in which it passed. The outcome of a call counts in that state only."""
    wait: float = 0.0
    """Seconds after which a refused call may try again."""
    transition: Transition | None = None
    shared: bool = True
    """False if this replica decided alone."""
    limited: bool = False
    """True if the call was refused because the service limits the rate of its party."""


class Circuits(Protocol):
    """The circuits of all services."""

    async def admit(self, name: str, config: CircuitConfig, party: str = "") -> Admission:
        """Return whether a call of a party may pass. Each admitted call is reported or abandoned."""
        ...

    async def limit(self, name: str, party: str, seconds: float) -> None:
        """Hold the calls of a party back for so long, because the service limits its rate. Never raises.

        A party is a tenant, or a subject without one: what one is refused for says nothing about the others.
        """
        ...

    async def half_open(self, namespace: str, config: CircuitConfig) -> None:
        """Let a call try each service of a namespace whose circuit is open: it answers again. Never raises."""
        ...

    async def report(self, name: str, config: CircuitConfig, admission: Admission, outcome: CallOutcome) -> None:
        """Report the outcome of an admitted call. Never raises."""
        ...

    def abandon(
        self, name: str, config: CircuitConfig, admission: Admission, outcome: CallOutcome = CallOutcome.NONE
    ) -> None:
        """Report that an admitted call ended because its caller left or its time was over. Never waits."""
        ...


@dataclass(slots=True)
class Circuit:
    """One circuit, by a clock that the caller passes."""

    state: CircuitState = CircuitState.CLOSED
    generation: int = 0
    since: float = 0.0
    arrivals: int = 0
    passed: int = 0
    under_way: int = 0
    succeeded: int = 0
    last_pass: float | None = None
    slices: dict[int, list[int]] = field(default_factory=dict)
    """Calls, failures and slow calls by the number of their slice of time."""

    def admit(self, config: CircuitConfig, now: float) -> Admission:
        """Decide about a call."""
        transition = None
        if self.state is CircuitState.OPEN:
            if now < self.since + config.open_seconds:
                return Admission(admitted=False, wait=self.since + config.open_seconds - now)
            transition = self._enter(CircuitState.HALF_OPEN, now)
        if self.state is CircuitState.CLOSED:
            return Admission(admitted=True, generation=self.generation)
        self.arrivals += 1
        idle = self.last_pass is None or now - self.last_pass >= config.open_seconds
        if idle:
            # The calls that were let through are lost, or there were none.
            self.under_way = 0
        if self.under_way >= config.max_canaries or not (idle or self.passed < self.arrivals // CANARY_SHARE):
            return Admission(admitted=False, wait=HALF_OPEN_WAIT, transition=transition)
        self.passed, self.under_way, self.last_pass = self.passed + 1, self.under_way + 1, now
        return Admission(admitted=True, generation=self.generation, transition=transition)

    def report(self, config: CircuitConfig, generation: int, outcome: CallOutcome, now: float) -> Transition | None:
        """Count an outcome, and return the change of state that it causes."""
        if generation != self.generation:
            return None
        if self.state is CircuitState.CLOSED:
            return self._count(config, outcome, now)
        self.under_way = max(self.under_way - 1, 0)
        if outcome in (CallOutcome.FAILURE, CallOutcome.SLOW):
            return self._enter(CircuitState.OPEN, now)
        self.succeeded += outcome is CallOutcome.SUCCESS
        return self._enter(CircuitState.CLOSED, now) if self.succeeded >= config.successes else None

    def half_open(self, now: float) -> Transition | None:
        """Let a call try the service, if the circuit is open: the service is known to answer again."""
        return self._enter(CircuitState.HALF_OPEN, now) if self.state is CircuitState.OPEN else None

    def _count(self, config: CircuitConfig, outcome: CallOutcome, now: float) -> Transition | None:
        if outcome is CallOutcome.NONE:
            return None
        current = int(now // (config.window / SLICES))
        for old in [number for number in self.slices if number <= current - SLICES]:
            del self.slices[old]
        counts = self.slices.setdefault(current, [0, 0, 0])
        counts[0] += 1
        counts[1] += outcome is CallOutcome.FAILURE
        counts[2] += outcome is CallOutcome.SLOW
        calls, failed, slow = (sum(each[column] for each in self.slices.values()) for column in range(3))
        return self._enter(CircuitState.OPEN, now) if config.opens(calls, failed, slow) else None

    def _enter(self, state: CircuitState, now: float) -> Transition:
        transition = Transition(self.state, state)
        self.state, self.since, self.generation = state, now, self.generation + 1
        self.arrivals = self.passed = self.under_way = self.succeeded = 0
        self.last_pass, self.slices = None, {}
        return transition
