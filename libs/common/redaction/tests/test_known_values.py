"""Which values of a payload are looked for elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.redaction.declared import Declared
from libs.common.redaction.known_values import MAX_KNOWN, KnownValues, known_values
from libs.common.redaction.scanner import UNEXAMINED, Scanner

SECRET = {"x-sensitivity": "high"}


def _known(payload: Any, **properties: Any) -> KnownValues | None:
    return known_values(payload, Declared.of({"properties": properties}, []))


def test_nothing_declared_is_nothing_known() -> None:
    assert known_values({"a": "hunter2"}, None) is None
    assert _known({"a": "hunter2"}, b=SECRET) is None


def test_every_text_and_number_below_a_declared_value_is_known() -> None:
    known = _known({"a": {"list": ["hunter2", 31415, True, None]}, "b": "free text"}, a=SECRET)
    assert known is not None
    assert [span.kind for span in known.find("hunter2 and 31415, free text")] == ["declared", "declared"]
    assert known.is_number(31415)
    assert not known.is_number(1)


def test_names_are_known_where_they_are_declared() -> None:
    known = _known({"by_user": {"alice-7": 1}}, by_user={"propertyNames": SECRET})
    assert known is not None
    assert list(known.find("for alice-7"))


@pytest.mark.parametrize("short", ["abc", "", "  x ", 123])
def test_a_short_value_is_not_looked_for(short: Any) -> None:
    assert _known({"a": short}, a=SECRET) is None


def test_beyond_the_limit_no_text_is_shown() -> None:
    known = _known({"a": [f"value-{n}" for n in range(MAX_KNOWN + 1)]}, a=SECRET)
    assert known is not None
    assert not known.complete
    scanner = Scanner().knowing(known)
    assert {finding.kind for finding in scanner.value({"k": "text"}).findings} == {UNEXAMINED}
    assert scanner.text("text").value == f"[redacted:{UNEXAMINED}]"
