"""Made arguments are what the schema accepts, for every signature that is derived."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from authoring.packs.derive_schema import input_schema
from authoring.packs.trials.argument_strategy import arguments_of
from authoring.tests.packs.signatures import ANNOTATIONS, taking
from services.registry.adapters.json_schemas import JsonSchemaChecker


class Call:
    """Stands for the call object."""


@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=str)
def test_made_arguments_are_accepted(annotation: Any) -> None:
    schema, checker = input_schema(taking(annotation), Call), JsonSchemaChecker()

    @settings(
        max_examples=8, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(arguments_of(schema))
    def attempt(arguments: Any) -> None:
        assert not checker.value_findings(schema, arguments)

    attempt()


def test_optional_members_and_items_are_made() -> None:
    schema = input_schema(taking(list[int]), Call)
    found = find(arguments_of(schema), lambda made: len(made["value"]) > 1 and "other" in made)
    assert found["other"] == 0
