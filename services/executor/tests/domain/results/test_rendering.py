"""Representations: templates that are nothing but places, bounded, and free of invisible characters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.common.redaction.declared import Declared
from libs.common.redaction.scanner import Scanner
from services.executor.domain.model import PLAIN, RenderedResult
from services.executor.domain.results.rendering import MODEL_BYTES, SEARCH_BYTES, UI_CHARACTERS, render_result
from services.executor.domain.tool import Rendering

VALUE = {
    "name": "Ada",
    "n": 9007199254740993,
    "ok": True,
    "none": None,
    "rows": [{"id": 1}, {"id": 2}],
    "a/b": {"{": "x"},
}


def shown(template: str, value: Any = VALUE, declared: Declared | None = None) -> RenderedResult:
    return render_result(Rendering(template, template, template), value, declared, Scanner())


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Hello {/name}!", "Hello Ada!"),
        ("/name", "Ada"),
        ("{/n} {/ok} {/none}", "9007199254740993 true null"),
        ("ids: {/rows/*/id}", "ids: 1, 2"),
        ("{/rows/0}", '{"id":1}'),
        ("[{/absent}]", "[]"),
        ("{name} {} {{/name}} {", "{name} {} {Ada} {"),
        ("{/name.__class__} {/name!r} {/n:>10}", ""),
        ("{/a~1b}", '{"{":"x"}'),
    ],
)
def test_a_template_is_text_and_places(template: str, text: str) -> None:
    assert shown(template).model.strip() == text


def test_without_templates_there_is_nothing() -> None:
    assert render_result(Rendering(), VALUE, None, Scanner()) is PLAIN
    assert render_result(Rendering(ui="{/name}"), VALUE, None, Scanner()) == RenderedResult(ui="Ada")


def test_what_was_put_in_is_never_a_template_itself() -> None:
    assert shown("{/name}", {"name": "{/secret}", "secret": "s"}).model == "{/secret}"


def test_every_representation_is_bounded_and_cut_between_characters() -> None:
    found = shown("{/name}", {"name": "é" * 20_000})
    assert len(found.model.encode()) <= MODEL_BYTES
    assert len(found.ui) == UI_CHARACTERS
    assert len(found.search.encode()) <= SEARCH_BYTES
    for text in (found.model, found.ui, found.search):
        assert text.rstrip("…").strip("é") == ""
        assert text.endswith("…")


def test_a_person_sees_what_is_there_and_the_model_what_was_returned() -> None:
    tricky = "a\u202eb\u200bc\x1b[31m\U000e0041d\n\n e"
    found = shown("{/name}", {"name": tricky})
    assert found.model == tricky
    assert found.ui == found.search == "abc[31md e"


def test_a_person_and_a_transcript_get_nothing_that_is_sensitive() -> None:
    schema = {"properties": {"pin": {"x-sensitivity": "high"}}}
    value = {"pin": "7777", "note": "4111 1111 1111 1111"}
    found = shown("{/pin} {/note}", value, Declared.of(schema, ()))
    assert found.model == "7777 4111 1111 1111 1111"
    for text in (found.ui, found.search):
        assert text == "[redacted:declared] [redacted:payment_card]"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=60), st.dictionaries(st.text(max_size=3), st.text(max_size=40), max_size=3))
def test_any_template_over_any_result_is_some_bounded_text(template: str, value: dict[str, str]) -> None:
    found = shown(template, value)
    assert len(found.ui) <= UI_CHARACTERS
    assert all(character.isprintable() for character in found.ui)
