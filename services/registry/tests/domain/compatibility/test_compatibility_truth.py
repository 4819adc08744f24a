"""No document refutes a proven containment."""

from __future__ import annotations

from random import Random
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from services.registry.tests.domain.compatibility.containment_oracle import (
    Tally,
    check_pairs,
    shown_contained,
    validator,
)
from services.registry.tests.domain.compatibility.schema_pairs import NAMES, NUMBERS, TEXTS, pair

SEEDS = st.integers(0, 2**48)
# Random documents from the same vocabulary as the schemas.
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.sampled_from(TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)


def test_no_document_refutes_a_proof() -> None:
    """Thousands of pairs, each checked as input and as output with dozens of documents."""
    tally = Tally()

    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(SEEDS)
    def run(seed: int) -> None:
        check_pairs(seed, 5, tally)

    run()
    assert tally.pairs > 2500
    # The run is meaningful: many pairs are proven, many are refuted, and few are unproven without a counterexample.
    assert tally.proven > tally.pairs // 3
    assert tally.refuted > tally.pairs // 10
    assert tally.unrefuted < tally.pairs // 10


@settings(max_examples=120, deadline=None)
@given(SEEDS, st.lists(DOCUMENTS, min_size=5, max_size=20))
def test_documents_that_owe_nothing_to_the_schemas_agree(seed: int, documents: list[Any]) -> None:
    old, new = pair(Random(seed))
    accepts, expected = validator(old), validator(new)
    if accepts is not None and expected is not None and shown_contained(old, new):
        assert [d for d in documents if accepts.is_valid(d) and not expected.is_valid(d)] == []
