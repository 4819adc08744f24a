"""Strict JSON: what survives, and what is refused."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.errors import MeshError, Reason
from libs.common.json import jsonio
from libs.common.json.canonical import canonical
from tests.harness.evidence.es6_numbers import es6_doubles

VALUES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_everything_the_contract_allows_survives_exactly(value: Any) -> None:
    assert jsonio.parse(json.dumps(value).encode()) == value
    assert jsonio.parse(jsonio.dump(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_may_be_written_with_seventeen_digits(value: float) -> None:
    assert jsonio.parse(b"[%.17g]" % value) == [value]
    assert jsonio.parse(b"[%.16e]" % value) == [value]


@pytest.mark.parametrize(
    "text", ["0.10", "1.5000000000000000000", "1E2", "-0.0", "0e-999", "5e-324", "1" + "0" * 21 + ".0"]
)
def test_zeros_and_exponents_do_not_matter(text: str) -> None:
    assert jsonio.parse(f"[{text}]".encode()) == [float(text)]


@given(st.binary(max_size=200))
def test_no_bytes_at_all_raise_anything_but_a_mesh_error(payload: bytes) -> None:
    with contextlib.suppress(MeshError):
        jsonio.parse(payload)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"{} {}",
        b"NaN",
        b"[Infinity]",
        b"[1e400]",
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":1,"\\u0061":2}',
        b"[18446744073709551616]",
        b"[-9223372036854775809]",
        b"[100000000000000000001]",
        b"[1000000000000000000000]",
        b"[0.5,18446744073709551617]",
        # A double holds another number.
        b"[0.1000000000000000055]",
        b"[9007199254740993.0]",
        b"[-9007199254740993e0]",
        b'{"a":"0.5","b":1.23456789012345678}',
        b"[1e-400]",
        b"[4e-324]",
        b"[0." + b"1" * 100_000 + b"]",
        b"[" + b"9" * 5000 + b"]",
        b'"\\ud800"',
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_the_contract_forbids_is_refused(payload: bytes) -> None:
    with pytest.raises(MeshError) as caught:
        jsonio.parse(payload)
    assert caught.value.reason is Reason.INVALID_JSON


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b"[18446744073709551615,-9223372036854775808]", [2**64 - 1, -(2**63)]),
        (b'{"digits":"99999999999999999999999"}', {"digits": "9" * 23}),
        (b'{"a\\":1":2,"b":"x\\":"}', {'a":1': 2, "b": 'x":'}),
        (b"[0.12345678901234568000000]", [0.12345678901234568]),
        (b"[1e300]", [1e300]),
        (b"[100000000000000000000,-100000000000000000000]", [1e20, -1e20]),
        (b"[18446744073709552000,-9223372036854776000]", [2.0**64, -(2.0**63)]),
        (b"[999999999999999900000]", [999999999999999900000.0]),
        (b'{"a":"b",":":1,"c":":"}', {"a": "b", ":": 1, "c": ":"}),
    ],
)
def test_what_only_looks_forbidden_is_accepted(payload: bytes, value: Any) -> None:
    assert jsonio.parse(payload) == value


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(2**63, 10**21).map(float))
def test_the_canonical_form_of_every_double_is_read_as_the_same_form(number: float) -> None:
    for signed in (number, -number):
        form = canonical({"n": signed})
        assert canonical(jsonio.parse(form)) == form


def test_the_published_numbers_keep_their_form() -> None:
    for number in es6_doubles(10_000):
        form = canonical(number)
        assert canonical(jsonio.parse(form)) == form


def test_too_deep_and_too_large_differ_from_malformed() -> None:
    deep = b"[" * 65 + b"]" * 65
    for payload, limit in ((deep, jsonio.MAX_BYTES), (b"[" + b" " * 100 + b"]", 50)):
        with pytest.raises(MeshError) as caught:
            jsonio.parse(payload, max_bytes=limit)
        assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE
    assert jsonio.parse(b"[" * 64 + b"]" * 64)


@pytest.mark.parametrize("depth", [65, 900, 1024, 1025, 1500, 100_000])
@pytest.mark.parametrize(
    ("opening", "closing"),
    [(b"[", b"]"), (b'{"a":', b"}"), (b'["\xc3\xa4]\\"]",', b"]")],
    ids=["lists", "objects", "texts"],
)
def test_too_deep_is_the_same_refusal_at_every_depth(opening: bytes, closing: bytes, depth: int) -> None:
    for payload in (opening * depth + b"1" + closing * depth, opening * depth, opening * depth + b"x"):
        with pytest.raises(MeshError) as caught:
            jsonio.parse(payload)
        assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE
        assert caught.value.metadata == {"limit_depth": str(jsonio.MAX_DEPTH)}


@pytest.mark.parametrize(
    "payload",
    [
        b"[]" * 2000,
        b"[" + b"[]," * 2000 + b"x]",
        b'["' + b"[" * 2000 + b'", x]',
        b'["' + b"[" * 2000 + b'\\" x]',
        b'["' + b"[" * 2000 + b"\x01",
        b"[" * 64 + b"x",
        b"\xff" + b"[" * 2000,
    ],
)
def test_many_brackets_are_not_depth(payload: bytes) -> None:
    with pytest.raises(MeshError) as caught:
        jsonio.parse(payload)
    assert caught.value.reason is Reason.INVALID_JSON


def test_arguments_are_an_object_and_nothing_means_the_empty_one() -> None:
    assert jsonio.parse_object(b"") == {}
    for payload in (b"[]", b"null", b"1", b'"x"'):
        with pytest.raises(MeshError):
            jsonio.parse_object(payload)


@pytest.mark.parametrize("part", [b"[]", b"{}", b'{"a":[]}'])
def test_a_request_with_too_many_lists_and_objects_is_refused_before_it_is_parsed(part: bytes) -> None:
    payload = b'{"a":[' + b",".join([part] * jsonio.MAX_CONTAINERS) + b"]}"
    with pytest.raises(MeshError) as caught:
        jsonio.parse_object(payload)
    assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE


def test_brackets_in_texts_are_no_lists() -> None:
    text = "[{" * jsonio.MAX_CONTAINERS
    assert jsonio.parse_object(jsonio.dump({"a": text})) == {"a": text}
