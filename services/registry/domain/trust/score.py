"""The trust score: eight weighted signals and a decay since the last verification. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from services.registry.domain.trust.facts import Facts
from services.registry.domain.trust.signals import SIGNALS, WEIGHTS, Signal, SignalReading

# Chosen here, because the specification lost its rate: an unverified tool loses half of its score in half a year.
DECAY_HALF_LIFE = timedelta(days=180)
DECAY_RATE = math.log(2) / DECAY_HALF_LIFE.total_seconds()


@dataclass(frozen=True, slots=True)
class Component:
    """One signal of a score."""

    signal: Signal
    reading: SignalReading

    @property
    def weight(self) -> float:
        return WEIGHTS[self.signal]

    @property
    def contribution(self) -> float:
        return self.reading.value * self.weight


@dataclass(frozen=True, slots=True)
class Score:
    """A score with its components."""

    components: tuple[Component, ...]
    decay: float
    last_verified: datetime

    @property
    def undecayed(self) -> float:
        return weighted_sum({component.signal: component.reading.value for component in self.components})

    @property
    def value(self) -> float:
        return self.undecayed * self.decay

    @property
    def own(self) -> float:
        """The score without the provider's other tools, 0 to 1."""
        alone = [c for c in self.components if c.signal is not Signal.PROVIDER_REPUTATION]
        share = math.fsum(component.weight for component in alone)
        return min(math.fsum(component.contribution for component in alone) / share, 1.0) * self.decay


def score(facts: Facts, now: datetime) -> Score:
    """Compute the score from facts as of a time."""
    verified = facts.last_verified or facts.admitted
    components = tuple(Component(signal, read(facts, now)) for signal, read in SIGNALS.items())
    return Score(components, decay(verified, now), verified)


def weighted_sum(values: Mapping[Signal, float]) -> float:
    """Return the weighted sum of all signals, 0 to 1."""
    return min(math.fsum(values[signal] * weight for signal, weight in WEIGHTS.items()), 1.0)


def decay(verified: datetime, now: datetime) -> float:
    """Return the decay factor: 1 directly after a verification, 0.5 after the half-life."""
    return math.exp(-DECAY_RATE * max((now - verified).total_seconds(), 0.0))


# The score of a tool without any facts.
UNPROVEN = score(Facts(admitted=datetime(2026, 1, 1, tzinfo=UTC)), datetime(2026, 1, 1, tzinfo=UTC)).value
