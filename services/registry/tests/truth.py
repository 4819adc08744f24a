"""Compares what the checker says about a pair of schemas with what documents say."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import jsonschema_rs

from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.domain.compatibility.proof.budget import Budget, OverBudgetError
from services.registry.domain.compatibility.proof.containment import containment_gaps
from services.registry.domain.compatibility.proof.subschema import as_schema
from services.registry.tests.schema_pairs import near, pair, value

CHECKER = JsonSchemaChecker()
TRIES = 60


@dataclass
class Tally:
    """How often the checker was right, and how often it was stricter than any document found would have it."""

    pairs: int = 0
    proven: int = 0
    refuted: int = 0
    unrefuted: int = 0
    documents: int = 0


def shown_contained(narrower: Any, wider: Any) -> bool:
    """What the checker says; over budget is not shown."""
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
    """Try pairs of schemas both ways: as an input that changes, and as an output. Raises AssertionError with the first
    document that shows the checker wrong."""
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
