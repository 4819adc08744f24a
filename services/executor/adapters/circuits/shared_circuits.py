"""The circuits that calls use: shared by all executors, and this replica's own while the store is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.executor.adapters.circuits.recent_changes import RecentChanges
from services.executor.adapters.circuits.valkey_circuits import ValkeyCircuits
from services.executor.adapters.telemetry.http_metrics import (
    circuit_refusals,
    circuit_transitions,
    circuits_shared,
    rate_limit_refusals,
)
from services.executor.domain.resilience.circuit import Admission, CallOutcome, Circuit, CircuitConfig, Transition
from services.executor.domain.resilience.list_circuits import CircuitView, RateLimit

_CIRCUITS = 4096
# How long the store is not asked again after a failure.
_AWAY_SECONDS = 5.0


class SharedCircuits:
    """Asks the store; decides alone while it does not answer, and logs both changes."""

    def __init__(
        self,
        store: ValkeyCircuits,
        clock: Clock,
        log: Log,
        on_transition: Callable[[str, Transition, bool], None],
        changes: RecentChanges | None = None,
    ) -> None:
        """`on_transition` gets the circuit, the change, and whether all executors share it. It never waits."""
        self._changes = changes
        self._store, self._clock, self._log, self._on_transition = store, clock, log, on_transition
        self._own: BoundedCache[str, Circuit] = BoundedCache(_CIRCUITS)
        self._limited: BoundedCache[tuple[str, str], float] = BoundedCache(_CIRCUITS)
        self._away_until: float | None = None
        self._listeners: list[Callable[[str, Transition], None]] = []
        self._reporting: set[asyncio.Task[None]] = set()
        circuits_shared.set(1)

    def listen(self, listener: Callable[[str, Transition], None]) -> None:
        """Call the listener after every change that is seen here. It never waits."""
        self._listeners.append(listener)

    async def admit(self, name: str, config: CircuitConfig, party: str = "") -> Admission:
        """Decide about a call."""
        admission = await self._ask_store(name, config, party)
        if admission is None:
            admission = self._decide_alone(name, config, party)
        self._observe(name, admission.transition, config, shared=admission.shared)
        if admission.limited:
            rate_limit_refusals.inc()
        elif not admission.admitted:
            circuit_refusals.inc()
        return admission

    async def report(self, name: str, config: CircuitConfig, admission: Admission, outcome: CallOutcome) -> None:
        """Count an outcome where the call was admitted. One that the store cannot take is lost."""
        transition: Transition | None = None
        if not admission.shared:
            circuit = self._circuit(name)
            transition = circuit.report(config, admission.generation, outcome, self._clock.monotonic())
        elif self._away_until is None:
            try:
                transition = await self._store.report(name, config, admission.generation, outcome)
            except Exception as error:
                self._lose_store(error)
        self._observe(name, transition, config, shared=admission.shared)

    async def limit(self, name: str, party: str, seconds: float) -> None:
        """Hold the calls of a party back: here at once, everywhere once the store has it."""
        self._limited.put((name, party), self._clock.monotonic() + seconds)
        if self._away_until is None:
            try:
                await self._store.limit(name, party, seconds)
            except Exception as error:
                self._lose_store(error)

    async def half_open(self, namespace: str, config: CircuitConfig) -> None:
        """Half-open the circuits of a namespace: those of all executors, or this one's own while it decides alone."""
        shared = self._away_until is None or self._clock.monotonic() >= self._away_until
        changes: list[tuple[str, Transition | None]] = []
        if shared:
            try:
                changes += await self._store.half_open(namespace)
            except Exception as error:
                self._lose_store(error)
                shared = False
        if not shared:
            now, own = self._clock.monotonic(), [name for name in self._own if name.startswith(f"{namespace}/")]
            changes += [(name, self._own[name].half_open(now)) for name in own]
        for name, transition in changes:
            self._observe(name, transition, config, shared=shared)

    def abandon(
        self, name: str, config: CircuitConfig, admission: Admission, outcome: CallOutcome = CallOutcome.NONE
    ) -> None:
        """Count an ended call in the background."""
        task = asyncio.create_task(self.report(name, config, admission, outcome), name="circuit-abandon")
        self._reporting.add(task)
        task.add_done_callback(self._reporting.discard)

    async def find(self, namespace: str, *, after: str, limit: int) -> list[CircuitView]:
        """Implement CircuitReader: the circuits of all executors, or this one's own while it decides alone."""
        if self._away_until is None or self._clock.monotonic() >= self._away_until:
            try:
                return await self._store.find(namespace, after=after, limit=limit)
            except Exception as error:
                self._lose_store(error)
        names = sorted(name for name in self._own if after < name and name.startswith(f"{namespace}/"))
        return [self._view(name) for name in names[:limit]]

    def _view(self, name: str) -> CircuitView:
        """Return a circuit of this executor alone. It remembers no changes."""
        circuit, now, offset = self._own[name], self._clock.monotonic(), self._clock.now()
        calls, failed, slow = (sum(each[column] for each in circuit.slices.values()) for column in range(3))
        parties = [(party, until - now) for (limited, party), until in self._limited.items() if limited == name]
        return CircuitView(
            name=name,
            state=circuit.state,
            since=offset - timedelta(seconds=now - circuit.since) if circuit.generation else None,
            retry_at=None,
            calls=calls,
            failed=failed,
            slow=slow,
            shared=False,
            limits=tuple(RateLimit(party, offset + timedelta(seconds=left)) for party, left in parties if left > 0),
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._reporting:
            await asyncio.wait(self._reporting)
        await self._store.close()

    def _decide_alone(self, name: str, config: CircuitConfig, party: str) -> Admission:
        now = self._clock.monotonic()
        limited = self._limited.get((name, party), now) - now
        if limited > 0:
            return Admission(admitted=False, wait=limited, shared=False, limited=True)
        return self._circuit(name).admit(config, now)._replace(shared=False)

    async def _ask_store(self, name: str, config: CircuitConfig, party: str) -> Admission | None:
        if self._away_until is not None and self._clock.monotonic() < self._away_until:
            return None
        try:
            admission = await self._store.admit(name, config, party)
        except Exception as error:
            # The client raises more than it documents.
            self._lose_store(error)
            return None
        if self._away_until is not None:
            self._away_until = None
            circuits_shared.set(1)
            self._log.info("circuits are shared again")
        return admission

    def _lose_store(self, error: Exception) -> None:
        if self._away_until is None:
            self._log.warning("circuits are not shared: this executor decides alone", cause=type(error).__name__)
            circuits_shared.set(0)
        self._away_until = self._clock.monotonic() + _AWAY_SECONDS

    def _circuit(self, name: str) -> Circuit:
        return self._own[name] if name in self._own else self._own.put(name, Circuit())

    def _observe(self, name: str, transition: Transition | None, config: CircuitConfig, *, shared: bool) -> None:
        if transition is None:
            return
        circuit_transitions.labels(transition.after).inc()
        self._log.info("circuit changed", circuit=name, before=transition.before, state=transition.after, shared=shared)
        self._on_transition(name, transition, shared)
        if self._changes is not None and not config.private:
            self._changes.note(name, transition.after, config.open_seconds)
        for listener in self._listeners:
            listener(name, transition)
