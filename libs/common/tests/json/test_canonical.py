"""The canonical form is RFC 8785, and exact where RFC 8785 would round."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import canonical, digest
from tests.harness.evidence.es6_numbers import PUBLISHED, es6_doubles, file_line

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_it_agrees_with_an_independent_implementation(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


def test_the_examples_of_the_rfc() -> None:
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 1e-27],
        "string": '€$\u000f\nA\'B"\\\\"/',
        "literals": [None, True, False],
    }
    assert canonical(value) == (
        b'{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        b'"string":"\xe2\x82\xac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_it_reproduces_the_published_vector_of_numbers() -> None:
    file = hashlib.sha256(b"".join(file_line(number, canonical(number)) for number in es6_doubles(100_000)))
    assert file.hexdigest() == PUBLISHED[100_000]


def test_keys_are_ordered_by_utf16_units() -> None:
    assert canonical({"\ufb33": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufb33":1}'.encode()


def test_neighbouring_64_bit_integers_have_different_digests() -> None:
    assert digest({"n": 2**53}) != digest({"n": 2**53 + 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": {1, 2}}])
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(MeshError) as caught:
        canonical({"v": value})
    assert caught.value.reason is Reason.INVALID_JSON
