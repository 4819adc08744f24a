"""The trust score: bounds, monotonicity and components."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.tool_names import ToolName
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.trust.compute_score import declared_time
from services.registry.domain.trust.facts import (
    Audit,
    AuditLevel,
    Facts,
    OtherTools,
    Ratings,
    Verification,
    VerificationKind,
)
from services.registry.domain.trust.score import DECAY_HALF_LIFE, UNPROVEN, Score, decay, score, weighted_sum
from services.registry.domain.trust.signals import FULL_VOLUME, WEIGHTS, Signal
from services.registry.domain.trust.usage import Usage

NOW = datetime(2026, 6, 1, tzinfo=UTC)
TOOL = ToolName("acme", "tool")
part = st.floats(0, 1)


def audit(level: AuditLevel, *, passed: bool = True) -> Audit:
    return Audit(TOOL, "1.0.0", level, passed, "somebody", NOW)


def verification(age: timedelta, *, passed: bool = True) -> Verification:
    return Verification(TOOL, "1.0.0", VerificationKind.REGRESSION, passed, NOW - age)


@st.composite
def usages(draw: st.DrawFn) -> Usage | None:
    ran = draw(st.integers(0, 10**9))
    if draw(st.booleans()):
        return None
    share = draw(part) if ran else None
    return Usage(ran, draw(st.integers(0, ran)), share, draw(part) if ran else None, ran, None)


ages = st.timedeltas(timedelta(days=-400), timedelta(days=4000))
facts = st.builds(
    Facts,
    admitted=ages.map(lambda age: NOW - age),
    usage=usages(),
    ratings=st.builds(Ratings, st.integers(0, 10**6), st.floats(1, 5)),
    audits=st.dictionaries(st.sampled_from(AuditLevel), st.booleans()).map(
        lambda found: {level: audit(level, passed=passed) for level, passed in found.items()}
    ),
    verifications=st.dictionaries(st.sampled_from(VerificationKind), st.tuples(ages, st.booleans())).map(
        lambda found: {kind: verification(age, passed=passed) for kind, (age, passed) in found.items()}
    ),
    others=st.builds(OtherTools, count=st.integers(0, 5), mean=part),
)


def value(found: Score, signal: Signal) -> float:
    return next(each.reading.value for each in found.components if each.signal is signal)


def test_the_weights_are_those_of_the_model() -> None:
    assert [WEIGHTS[signal] for signal in Signal] == [0.25, 0.15, 0.15, 0.15, 0.10, 0.10, 0.05, 0.05]
    assert math.fsum(WEIGHTS.values()) == pytest.approx(1.0)


@given(facts)
def test_a_score_and_all_its_parts_stay_between_nothing_and_one(found: Facts) -> None:
    made = score(found, NOW)
    parts = [made.value, made.own, made.undecayed, made.decay, *(each.reading.value for each in made.components)]
    assert all(0.0 <= each <= 1.0 for each in parts)
    assert [each.signal for each in made.components] == list(Signal)


@given(facts)
def test_a_score_is_the_sum_of_what_it_shows(found: Facts) -> None:
    made = score(found, NOW)
    shown = math.fsum(each.contribution for each in made.components)
    assert made.value == pytest.approx(shown * made.decay)
    assert all(each.contribution == pytest.approx(each.reading.value * each.weight) for each in made.components)


@given(st.fixed_dictionaries(dict.fromkeys(Signal, part)), st.sampled_from(Signal), part)
def test_a_better_signal_never_makes_a_worse_score(values: dict[Signal, float], signal: Signal, other: float) -> None:
    low, high = sorted((values[signal], other))
    assert weighted_sum(values | {signal: low}) <= weighted_sum(values | {signal: high})
    if high - low > 1e-6:
        assert weighted_sum(values | {signal: low}) < weighted_sum(values | {signal: high})


@given(ages, ages)
def test_trust_only_falls_with_the_time_since_a_verification(one: timedelta, other: timedelta) -> None:
    younger, older = sorted((one, other))
    assert 0.0 < decay(NOW - older, NOW) <= decay(NOW - younger, NOW) <= 1.0


def test_the_decay_halves_with_the_half_life() -> None:
    assert decay(NOW, NOW) == 1.0
    assert decay(NOW - DECAY_HALF_LIFE, NOW) == pytest.approx(0.5)
    assert decay(NOW + timedelta(days=9), NOW) == 1.0


@given(facts, st.timedeltas(timedelta(), timedelta(days=4000)))
def test_with_nothing_but_time_a_score_never_rises(found: Facts, passed: timedelta) -> None:
    assert score(found, NOW + passed).value <= score(found, NOW).value + 1e-12


@given(st.integers(1, 10**7), st.integers(0, 10**7), st.integers(0, 10**7))
def test_more_successes_of_as_many_calls_never_score_worse(ran: int, one: int, other: int) -> None:
    few, many = sorted((min(one, ran), min(other, ran)))
    low, high = (score(Facts(NOW, Usage(ran, n)), NOW).value for n in (few, many))
    assert low <= high


@given(st.integers(1, 10**7), st.integers(1, 10**7))
def test_more_calls_never_mean_less_volume_and_enough_are_enough(one: int, other: int) -> None:
    few, many = sorted((one, other))
    low, high = (value(score(Facts(NOW, Usage(n, n)), NOW), Signal.USAGE_VOLUME) for n in (few, many))
    assert low <= high <= 1.0
    assert value(score(Facts(NOW, Usage(FULL_VOLUME, 0)), NOW), Signal.USAGE_VOLUME) == 1.0


@given(facts, st.floats(1, 5), st.floats(1, 5), st.integers(1, 9))
def test_better_ratings_never_score_worse(found: Facts, one: float, other: float, count: int) -> None:
    low, high = sorted((one, other))
    scores = [score(replace(found, ratings=Ratings(count, stars)), NOW).value for stars in (low, high)]
    assert scores[0] <= scores[1] + 1e-12


def test_audits_by_others_are_worth_more_and_a_failed_one_is_worth_nothing() -> None:
    none, own, third = Facts(NOW), {AuditLevel.SELF_ASSESSED: True}, {AuditLevel.THIRD_PARTY: True}
    tried = [{}, own, own | third, third, own | {AuditLevel.THIRD_PARTY: False}]
    values = [
        value(score(replace(none, audits={k: audit(k, passed=v) for k, v in each.items()}), NOW), Signal.SECURITY_AUDIT)
        for each in tried
    ]
    assert values == [0.0, 0.5, 1.0, 1.0, 0.0]


def test_without_facts_every_signal_says_what_is_missing_and_takes_its_default() -> None:
    made = score(Facts(NOW), NOW)
    readings = {each.signal: each.reading for each in made.components}
    assert all(reading.missing and not reading.seen for reading in readings.values())
    undone = {Signal.SECURITY_AUDIT, Signal.FRESHNESS, Signal.USAGE_VOLUME}
    assert {signal: reading.value for signal, reading in readings.items()} == {
        signal: 0.0 if signal in undone else 0.5 for signal in Signal
    }
    assert made.value == UNPROVEN == pytest.approx(0.375)


def test_a_failed_verification_neither_freshens_nor_stops_the_decay() -> None:
    admitted = NOW - timedelta(days=180)
    failed = Facts(admitted, verifications={VerificationKind.REGRESSION: verification(timedelta(), passed=False)})
    passed = Facts(admitted, verifications={VerificationKind.REGRESSION: verification(timedelta())})
    assert (score(failed, NOW).decay, value(score(failed, NOW), Signal.FRESHNESS)) == (pytest.approx(0.5), 0.0)  # type: ignore[comparison-overlap]
    assert (score(passed, NOW).decay, value(score(passed, NOW), Signal.FRESHNESS)) == (1.0, 1.0)


def test_calls_are_measured_by_the_promised_time_else_by_the_timeout() -> None:
    execution = {"timeout_class": "standard", "timeout_default": "2s"}
    promised = Manifest({"execution": execution, "sla": {"latency_p95": "0.300s", "latency_p99": "1s"}})
    assert declared_time(promised) == timedelta(milliseconds=300)
    assert declared_time(Manifest({"execution": execution, "sla": {"latency_p99": "1s"}})) == timedelta(seconds=2)
    assert declared_time(Manifest({"execution": {"timeout_class": "standard"}})) == timedelta(seconds=5)
    assert declared_time(None) is None
