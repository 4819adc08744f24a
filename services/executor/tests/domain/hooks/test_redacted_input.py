"""What hooks are not shown stays what it is, whatever they change."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.common.redaction.declared import Declared
from libs.common.redaction.scanner import Scanner
from services.executor.domain.hooks.answers import HookFailedError
from services.executor.domain.hooks.redacted_input import RedactedView, changes_between, restore_hidden

DECLARED = Declared({}, ["/secret", "/people/*/id"])


def sight(value: Any) -> RedactedView:
    return RedactedView.of(value, DECLARED, Scanner())


WHOLE = {
    "text": "hello",
    "secret": "s3cret",
    "people": [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}],
    "mail": "write to ada@example.com today",
}


def test_a_hook_that_may_see_sensitive_values_does() -> None:
    seen = RedactedView.of(WHOLE, DECLARED, None)
    assert seen.shown == WHOLE
    assert restore_hidden({"secret": "[redacted:declared]"}, seen) == {"secret": "[redacted:declared]"}


def test_what_is_sensitive_is_not_shown() -> None:
    seen = sight(WHOLE)
    assert "s3cret" not in str(seen.shown)
    assert "ada@example.com" not in str(seen.shown)
    assert seen.shown["people"][0] == {"id": "[redacted:declared]", "name": "Ada"}


def test_what_was_hidden_is_back_where_the_hook_left_its_mark() -> None:
    answered = {**sight(WHOLE).shown, "text": "changed"}
    assert restore_hidden(answered, sight(WHOLE)) == {**WHOLE, "text": "changed"}


def test_what_was_hidden_is_back_beside_a_change_within_the_same_part() -> None:
    seen = sight(WHOLE)
    people = [dict(person) for person in seen.shown["people"]]
    people[1]["name"] = "Eve"
    restored = restore_hidden({**seen.shown, "people": people}, seen)
    assert restored["people"] == [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Eve"}]


def test_a_hook_may_take_away_or_replace_what_it_does_not_see() -> None:
    seen = sight(WHOLE)
    assert restore_hidden({"text": "hello"}, seen) == {"text": "hello"}
    assert restore_hidden({"secret": "new"}, seen) == {"secret": "new"}


@pytest.mark.parametrize(
    "answered",
    [
        {"text": "[redacted:declared]"},
        {"text": "a [redacted:declared] b"},
        {"other": {"deep": ["[redacted:declared]"]}},
        {"[redacted:declared]": 1},
        {"people": [{"id": "[redacted:declared]", "name": "Ada"}]},
        {"mail": "write to [redacted:email] tomorrow"},
    ],
)
def test_a_mark_anywhere_else_is_no_answer(answered: dict[str, Any]) -> None:
    with pytest.raises(HookFailedError) as caught:
        restore_hidden(answered, sight(WHOLE))
    assert caught.value.kind == "hidden_moved"


def test_a_mark_that_the_caller_wrote_itself_is_just_a_text() -> None:
    whole = {"text": "[redacted:declared]", "secret": "x"}
    answered = {**sight(whole).shown, "more": 1}
    assert restore_hidden(answered, sight(whole)) == {**whole, "more": 1}


def test_a_text_tells_no_name_that_is_hidden() -> None:
    people = Declared.of({"properties": {"people": {"propertyNames": {"x-sensitivity": "pii"}}}}, ())
    seen = RedactedView.of({"people": {"ada": 17}}, people, Scanner())
    assert seen.redact_text("ada is too young", Scanner()) == "[redacted:declared] is too young"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2, "b": 3}, ["/a", "/b"]),
        ({"a": 1, "b": 2}, {"b": 2}, ["/a"]),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, ["/a/b/1/c"]),
        ({"a": [1]}, {"a": [1, 2]}, ["/a"]),
        ({"a": 1}, {"a": True}, ["/a"]),
        ({"a": 1}, {"a": 1.0}, ["/a"]),
        ({"a": {"b": 1}}, {"a": [1]}, ["/a"]),
        ({"a/b": 1, "c~d": 1}, {"a/b": 2, "c~d": 2}, ["/a~1b", "/c~0d"]),
        ({str(n): 0 for n in range(50)}, {str(n): 1 for n in range(50)}, [""]),
    ],
)
def test_changes_are_named_by_their_places(before: Any, after: Any, expected: list[str]) -> None:
    assert changes_between(before, after) == expected


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["text", "secret", "people", "password"]), values, max_size=4))
def test_an_input_that_comes_back_as_it_was_shown_has_not_changed(whole: dict[str, Any]) -> None:
    seen = sight(whole)
    assert changes_between(whole, restore_hidden(seen.shown, seen)) == []
