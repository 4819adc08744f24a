"""Compares containment proofs of schema pairs with random documents."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import jsonschema_rs

from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.domain.compatibility.proof.budget import Budget, OverBudgetError
from services.registry.domain.compatibility.proof.containment import containment_gaps
from services.registry.domain.compatibility.proof.subschema import as_schema
from services.registry.tests.domain.compatibility.schema_pairs import near, pair, value

CHECKER = JsonSchemaChecker()
TRIES = 60


@dataclass
class Tally:
    """Counts of proven and refuted pairs, and of unproven pairs without a counterexample."""

    pairs: int = 0
    proven: int = 0
    refuted: int = 0
    unrefuted: int = 0
    documents: int = 0


def shown_contained(narrower: Any, wider: Any) -> bool:
    """Return whether containment is proven; False when over budget."""
    try:
        return not containment_gaps(CHECKER, Budget(), as_schema(narrower), as_schema(wider))
    except OverBudgetError:
        return False


def counterexample(rng: Random, narrower: Any, wider: Any, tally: Tally, tries: int = TRIES) -> list[Any]:
    """Return a document that only the narrower schema accepts, as a list of one; empty if none was found."""
    accepts, expected = validator(narrower), validator(wider)
    for _ in range(tries):
        document = near(rng, narrower, narrower) if rng.random() < 0.8 else value(rng)
        if accepts.is_valid(document):
            tally.documents += 1
            if not expected.is_valid(document):
                return [document]
    return []


def check_pairs(seed: int, count: int, tally: Tally) -> None:
    """Check random pairs of schemas in both directions. Raises AssertionError with the first document that refutes a
    proof."""
    rng = Random(seed)
    for _ in range(count):
        old, new = pair(rng)
        if validator(old) is None or validator(new) is None:
            continue
        # An input is compatible if the new schema contains the old one; an output, if the old contains the new one.
        for narrower, wider in ((old, new), (new, old)):
            _check(rng, narrower, wider, tally)


def _check(rng: Random, narrower: Any, wider: Any, tally: Tally) -> None:
    shown = shown_contained(narrower, wider)
    found = counterexample(rng, narrower, wider, tally)
    tally.pairs += 1
    assert not (shown and found), f"{narrower} was shown to be within {wider}, and {found[0]} is not"
    if shown:
        tally.proven += 1
    elif found:
        tally.refuted += 1
    else:
        tally.unrefuted += 1


def validator(schema: Any) -> Any:
    """Return a validator that asserts formats, or None for a schema that cannot be compiled."""
    try:
        return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    except jsonschema_rs.ValidationError:
        return None
