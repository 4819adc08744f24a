"""The eight signals: each a pure function from facts to a value between 0 and 1.

A signal without facts reports what is missing and has a default: neutral for facts that come with time and use (calls,
ratings, other tools), 0 for facts that need an action (audits, verifications).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from services.registry.domain.trust.facts import AuditLevel, Facts

NEUTRAL, NOT_DONE = 0.5, 0.0
# Chosen here, because the specification lost its formulas: a self-assessed audit counts half of a third-party one.
AUDIT_VALUES = {AuditLevel.SELF_ASSESSED: 0.5, AuditLevel.THIRD_PARTY: 1.0}
# The value of a verification halves after a month.
FRESH_HALF_LIFE = timedelta(days=30)
# Ten times the calls that GA needs; more calls add nothing.
FULL_VOLUME = 10_000
_BEST, _WORST = 5.0, 1.0


class Signal(StrEnum):
    """A component of the score."""

    RELIABILITY = "reliability"
    SCHEMA_COMPLIANCE = "schema_compliance"
    LATENCY_SLA = "latency_sla"
    SECURITY_AUDIT = "security_audit"
    COMMUNITY_RATING = "community_rating"
    PROVIDER_REPUTATION = "provider_reputation"
    FRESHNESS = "freshness"
    USAGE_VOLUME = "usage_volume"


WEIGHTS: Mapping[Signal, float] = {
    Signal.RELIABILITY: 0.25,
    Signal.SCHEMA_COMPLIANCE: 0.15,
    Signal.LATENCY_SLA: 0.15,
    Signal.SECURITY_AUDIT: 0.15,
    Signal.COMMUNITY_RATING: 0.10,
    Signal.PROVIDER_REPUTATION: 0.10,
    Signal.FRESHNESS: 0.05,
    Signal.USAGE_VOLUME: 0.05,
}


@dataclass(frozen=True, slots=True)
class SignalReading:
    """The value of a signal, its evidence, and what is missing."""

    value: float
    seen: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""


def reliability(facts: Facts, now: datetime) -> SignalReading:
    """The share of completed calls that succeeded."""
    return _rate(facts, facts.usage.success_rate if facts.usage else None)


def schema_compliance(facts: Facts, now: datetime) -> SignalReading:
    """The share of completed calls whose result matched the output schema."""
    return _rate(facts, facts.usage.valid_results if facts.usage else None)


def latency_sla(facts: Facts, now: datetime) -> SignalReading:
    """The share of timed calls within the declared time limit."""
    return _rate(facts, facts.usage.within_latency if facts.usage else None)


def security_audit(facts: Facts, now: datetime) -> SignalReading:
    """The best audit level; 0 while the newest audit of any level has failed."""
    if not facts.audits:
        return SignalReading(NOT_DONE, missing="no security audit")
    seen = {level.value: "passed" if audit.passed else "failed" for level, audit in sorted(facts.audits.items())}
    if not all(audit.passed for audit in facts.audits.values()):
        return SignalReading(NOT_DONE, seen)
    return SignalReading(max(AUDIT_VALUES[level] for level in facts.audits), seen)


def community_rating(facts: Facts, now: datetime) -> SignalReading:
    """The average rating, mapped from 1 to 5 stars to 0 to 1."""
    if not facts.ratings.count:
        return SignalReading(NEUTRAL, missing="no ratings")
    value = (facts.ratings.average - _WORST) / (_BEST - _WORST)
    return SignalReading(
        _bounded(value), {"average": f"{facts.ratings.average:.2f}", "ratings": str(facts.ratings.count)}
    )


def provider_reputation(facts: Facts, now: datetime) -> SignalReading:
    """The mean own score of the provider's other tools."""
    others = facts.others
    if not others.count:
        return SignalReading(NEUTRAL, missing="no other tool of the provider")
    return SignalReading(_bounded(others.mean), {"other_tools": str(others.count)})


def freshness(facts: Facts, now: datetime) -> SignalReading:
    """The age of the last verification: 1 at once, 0.5 after a month."""
    verified = facts.last_verified
    if verified is None:
        return SignalReading(NOT_DONE, missing="never verified")
    age = max(now - verified, timedelta())
    return SignalReading(_bounded(0.5 ** (age / FRESH_HALF_LIFE)), {"last_verified": verified.isoformat()})


def usage_volume(facts: Facts, now: datetime) -> SignalReading:
    """The number of completed calls on a logarithmic scale up to ten thousand."""
    if facts.usage is None:
        return SignalReading(NOT_DONE, missing="usage cannot be read")
    if not facts.usage.ran:
        return SignalReading(NOT_DONE, missing="no calls")
    value = math.log1p(facts.usage.ran) / math.log1p(FULL_VOLUME)
    return SignalReading(_bounded(value), {"calls": str(facts.usage.ran)})


SIGNALS: Mapping[Signal, Callable[[Facts, datetime], SignalReading]] = {
    Signal.RELIABILITY: reliability,
    Signal.SCHEMA_COMPLIANCE: schema_compliance,
    Signal.LATENCY_SLA: latency_sla,
    Signal.SECURITY_AUDIT: security_audit,
    Signal.COMMUNITY_RATING: community_rating,
    Signal.PROVIDER_REPUTATION: provider_reputation,
    Signal.FRESHNESS: freshness,
    Signal.USAGE_VOLUME: usage_volume,
}


def _rate(facts: Facts, rate: float | None) -> SignalReading:
    if facts.usage is None:
        return SignalReading(NEUTRAL, missing="usage cannot be read")
    if rate is None:
        return SignalReading(NEUTRAL, missing="no calls")
    return SignalReading(_bounded(rate), {"calls": str(facts.usage.ran), "rate": f"{rate:.4f}"})


def _bounded(value: float) -> float:
    return min(max(value, 0.0), 1.0)
