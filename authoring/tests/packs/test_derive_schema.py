"""Schemas of signatures: equal to pydantic's own, but closed; what cannot be derived is refused with its place."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field, TypeAdapter

from authoring.packs.derive_schema import (
    UnderivableError,
    input_schema,
    output_schema,
    parameter_descriptions,
    summary_of,
)
from authoring.tests.packs.signatures import ANNOTATIONS, REFUSED, Point, taking


class Call:
    """Stands for the call object."""


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if "properties" in schema and isinstance(schema["properties"], dict):
            yield schema
        for part in schema.values():
            yield from objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects(part)


def opened(schema: Any) -> Any:
    """Drop titles and the keyword that closes an object, to compare the rest."""
    if isinstance(schema, list):
        return [opened(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closes = schema.get("additionalProperties") is False
    return {
        name: opened(part)
        for name, part in schema.items()
        if not (name == "title" and isinstance(part, str)) and not (name == "additionalProperties" and closes)
    }


def test_there_are_sixty() -> None:
    assert len(ANNOTATIONS) == 60


@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=str)
def test_a_schema_is_pydantics_own_but_closed(annotation: Any) -> None:
    function = taking(annotation)
    derived = input_schema(function, Call)
    assert opened(derived) == opened(TypeAdapter(function).json_schema())
    assert all(part["additionalProperties"] is False for part in objects(derived))
    assert derived["required"] == ["value"]
    assert derived["properties"]["other"]["default"] == 3


@pytest.mark.parametrize(("annotation", "place"), REFUSED, ids=str)
def test_what_cannot_be_derived_is_refused_with_its_place(annotation: Any, place: str) -> None:
    with pytest.raises(UnderivableError) as refused:
        input_schema(taking(annotation), Call)
    assert refused.value.place == place


def test_parameters_that_have_no_name_are_refused() -> None:
    def positional(value: int, /) -> None: ...
    def several(*values: int) -> None: ...
    def named(**values: int) -> None: ...
    def bare(value) -> None: ...  # type: ignore[no-untyped-def]

    for function in (positional, several, named, bare):
        with pytest.raises(UnderivableError):
            input_schema(function, Call)


def test_the_call_is_no_argument() -> None:
    def function(text: str, call: Call) -> None: ...

    function.__annotations__ = {"text": str, "call": Call, "return": None}
    assert input_schema(function, Call)["properties"].keys() == {"text"}


def returning(annotation: Any) -> Any:
    def function() -> Any: ...

    function.__annotations__ = {"return": annotation}
    return function


def test_a_result_is_an_object() -> None:
    assert output_schema(returning(Point))["properties"].keys() == {"x", "y"}
    wrapped = output_schema(returning(list[Point]))
    assert all(part["additionalProperties"] is False for part in objects([output_schema(returning(Point)), wrapped]))
    assert wrapped["properties"]["result"]["items"] == {"$ref": "#/$defs/Point"}
    assert wrapped["required"] == ["result"]
    with pytest.raises(UnderivableError):
        output_schema(lambda: None)


def test_a_generator_yields_parts() -> None:
    def function() -> Iterator[int]:
        yield 1

    assert output_schema(function)["properties"]["parts"]["items"] == {"type": "integer"}


def test_docstrings_describe_parameters() -> None:
    google = "Does it.\n\nMore.\n\nArgs:\n    text: The text.\n    top (int): How many.\n\nReturns:\n    other: no.\n"
    assert parameter_descriptions(google) == {"text": "The text.", "top": "How many."}
    assert summary_of(google) == "Does it.\n\nMore."
    sphinx = "Does it.\n\n:param text: The text.\n:param int top: How many.\n"
    assert parameter_descriptions(sphinx) == {"text": "The text.", "top": "How many."}
    assert summary_of(sphinx) == "Does it."


def test_limits_of_the_author_s_library_become_keywords() -> None:
    worker = str(Path(__file__).parents[3] / "services" / "executor" / "worker")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(worker)
        limits = importlib.import_module("toolmesh_tool.limits").Limits
    name = Annotated[str, limits(min_length=1, pattern="^[a-z]+$", description="A name.")]
    mine = input_schema(taking(list[Annotated[int, limits(ge=1, le=9)]]), Call)["properties"]["value"]
    assert mine == input_schema(taking(list[Annotated[int, Field(ge=1, le=9)]]), Call)["properties"]["value"]
    assert input_schema(taking(name), Call)["properties"]["value"] == {
        "type": "string",
        "minLength": 1,
        "pattern": "^[a-z]+$",
        "description": "A name.",
    }


def test_an_asynchronous_generator_yields_parts() -> None:
    async def function() -> AsyncIterator[int]:
        yield 1

    assert output_schema(function)["properties"]["parts"]["items"] == {"type": "integer"}
