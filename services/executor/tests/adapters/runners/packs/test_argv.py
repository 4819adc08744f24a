"""Argument vectors built from templates and arguments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.errors import MeshError, Reason
from services.executor.adapters.runners.packs.argv import MAX_BYTES, MAX_ELEMENT_BYTES, build_argv

HOSTILE = ["; rm -rf /", "$(id)", "`id`", "a b", "a\nb", "'\"", "*", "~", "a&&b", "|", "\\", "", "{other}", "}}"]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_stays_one_element(value: str) -> None:
    assert build_argv(["-x", "{name}", "--n={name}"], {"name": value, "other": "!"}) == ("-x", value, f"--n={value}")


@pytest.mark.parametrize(
    ("value", "element"),
    [(3, "3"), (1.5, "1.5"), (True, "true"), (["a", 1], '["a",1]'), ({"k": None}, '{"k":null}'), ("ü", "ü")],
)
def test_values_other_than_strings_are_written_as_json(value: Any, element: str) -> None:
    assert build_argv(["{v}"], {"v": value}) == (element,)


def test_double_braces_are_literal_braces() -> None:
    assert build_argv(["{{v}}", "a{{b"], {"v": 1}) == ("{v}", "a{b")


def test_a_template_that_is_only_an_absent_argument_is_left_out() -> None:
    assert build_argv(["-a", "{v}", "--b={v}"], {}) == ("-a", "--b=")
    assert build_argv(["{v}"], {"v": None}) == ()


@pytest.mark.parametrize("value", ["-rf", "--output=/x", "-", -5])
def test_a_value_that_looks_like_an_option_is_refused(value: Any) -> None:
    with pytest.raises(MeshError) as caught:
        build_argv(["{v}"], {"v": value})
    assert caught.value.reason is Reason.INJECTION_DETECTED
    assert [violation.path for violation in caught.value.violations] == ["/v"]


def test_an_option_after_an_empty_value_is_refused() -> None:
    with pytest.raises(MeshError):
        build_argv(["{a}{b}"], {"a": "", "b": "-x"})


@pytest.mark.parametrize("templates", [["--", "{v}"], ["--value={v}"], ["./{v}"]])
def test_a_dash_is_allowed_where_it_cannot_begin_an_option(templates: list[str]) -> None:
    assert build_argv(templates, {"v": "-x"})[-1].endswith("-x")


def test_dashes_in_a_value_do_not_end_the_options() -> None:
    with pytest.raises(MeshError) as caught:
        build_argv(["{a}", "{b}"], {"a": "--", "b": "-x"})
    assert {violation.path for violation in caught.value.violations} == {"/a", "/b"}


@pytest.mark.parametrize("value", ["a\0b", ["a\0"], "x" * (MAX_ELEMENT_BYTES + 1)])
def test_null_characters_and_oversized_values_are_refused(value: Any) -> None:
    if isinstance(value, list):
        # JSON writes the null character as six others, which any program can be given.
        assert build_argv(["{v}"], {"v": value}) == ('["a\\u0000"]',)
        return
    with pytest.raises(MeshError) as caught:
        build_argv(["--v={v}"], {"v": value})
    assert caught.value.reason is Reason.INJECTION_DETECTED


def test_an_oversized_argument_vector_is_refused() -> None:
    element = "x" * (MAX_BYTES // 16)
    assert build_argv(["{v}"] * 16, {"v": element}) == (element,) * 16
    with pytest.raises(MeshError) as caught:
        build_argv(["{v}"] * 17, {"v": element})
    assert caught.value.reason is Reason.INJECTION_DETECTED


@given(value=st.text(max_size=50).filter(lambda text: "\0" not in text and not text.startswith("-")))
def test_no_value_ever_becomes_more_than_one_element(value: str) -> None:
    assert build_argv(["first", "{v}", "x{v}y"], {"v": value}) == ("first", value, f"x{value}y")


@given(value=st.text(max_size=50).filter(lambda text: "\0" not in text))
def test_after_dashes_every_value_is_one_element(value: str) -> None:
    assert build_argv(["--", "{v}"], {"v": value}) == ("--", value)
