"""Canonical JSON, against the package of the standard and against the service's own."""

from __future__ import annotations

import hashlib
import json
import math

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from toolmesh_sdk.audit.format.canonical import UnreadableJsonError, canonical, parse, quick_canonical

from libs.common.errors import MeshError
from libs.common.json.canonical import canonical as of_the_service
from libs.common.json.jsonio import parse as read_by_the_service
from tests.harness.evidence.es6_numbers import PUBLISHED, es6_doubles, file_line

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(values)
def test_canonical_json_equals_rfc_8785_within_its_range(value: object) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@given(values | st.integers(-(2**63), 2**64 - 1))
def test_the_log_and_its_verifier_write_the_same(value: object) -> None:
    assert canonical(value) == of_the_service(value)
    assert canonical(parse(canonical(value))) == canonical(value)


def test_integers_keep_all_their_digits() -> None:
    for number in (2**53 + 1, 2**64 - 1, -(2**63), 10**20, 18446744073709552000, -(10**20)):
        assert canonical({"n": number}) == b'{"n":%d}' % number
        assert parse(b"%d" % number) == number


@pytest.mark.parametrize("number", [2**64, 2**64 + 1, -(2**63) - 1, 10**20 + 1, 10**21, 10**40, 10**400])
def test_an_integer_that_no_double_is_written_as_is_refused(number: int) -> None:
    for refused in (lambda: parse(b"[%d]" % number), lambda: canonical({"n": number})):
        with pytest.raises(UnreadableJsonError):
            refused()


def test_log_and_verifier_agree_on_every_number_of_the_published_vector() -> None:
    forms = [(number, canonical(number)) for number in es6_doubles(10_000)]
    file = hashlib.sha256(b"".join(file_line(*line) for line in forms))
    assert file.hexdigest() == PUBLISHED[10_000]
    for number, form in forms:
        assert canonical(parse(form)) == form == of_the_service(number) == of_the_service(read_by_the_service(form))


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(2**64, 10**21).map(float))
def test_the_form_of_a_double_is_read_as_the_same_form(number: float) -> None:
    form = canonical([number])
    assert canonical(parse(form)) == of_the_service(read_by_the_service(form)) == form


@given(st.integers(2**63 - 10**6, 10**21 + 10**6) | st.integers(17, 21).flatmap(lambda n: st.just(10**n)))
def test_log_and_verifier_refuse_the_same_integers(number: int) -> None:
    for signed in (number, -number):
        try:
            form = of_the_service(read_by_the_service(b"%d" % signed))
        except MeshError:
            with pytest.raises(UnreadableJsonError):
                parse(b"%d" % signed)
        else:
            assert form == canonical(parse(b"%d" % signed)) == b"%d" % signed


def test_the_quick_form_is_right_for_what_records_are_made_of() -> None:
    value = {"b": [1, True, None, "\x1f\x7f\u2028"], "a": {"ä": 2**60}, "€": "\U0001f600"}
    assert (
        quick_canonical(value)
        == canonical(value)
        == rfc8785.dumps({**value, "a": {"ä": 0}}).replace(b":0", b":%d" % 2**60)
    )


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":2}',
        b'{"x":{"a":1,"a":1}}',
        b"NaN",
        b"[Infinity]",
        b"{",
        b"",
        b"\xff",
        b"1 2",
        b"1" + b"0" * 40,
        b"1" * 400,
        b"1" * 5000,
    ],
)
def test_what_two_readers_could_understand_differently_is_refused(text: bytes) -> None:
    with pytest.raises(UnreadableJsonError):
        parse(text)


def test_what_has_no_form_is_refused() -> None:
    for value in (math.nan, math.inf, "\ud800", {"\ud800": 1}):
        with pytest.raises(UnreadableJsonError):
            canonical(value)
    with pytest.raises(UnreadableJsonError):
        quick_canonical("\ud800")


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(UnreadableJsonError):
        parse(b"[" * 100_000)
    assert json.loads(canonical([[[]]])) == [[[]]]
