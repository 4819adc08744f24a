"""JSON keeps every digit, and what is not JSON is refused before it is sent."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from toolmesh_sdk import InternalToolError, InvalidInputError, Reason
from toolmesh_sdk._wire.payload import MAX_ARGUMENT_BYTES, dump, encode_arguments, parse


@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 10**30])
def test_integers_survive_in_both_directions(number: int) -> None:
    assert encode_arguments({"n": number}) == b'{"n":%d}' % number
    assert parse(b'{"n":%d}' % number) == {"n": number}


def test_text_travels_as_it_is() -> None:
    assert encode_arguments({"text": "grüße 🙂"}) == '{"text":"grüße 🙂"}'.encode()


def test_no_arguments_are_no_bytes() -> None:
    assert encode_arguments(None) == encode_arguments({}) == b""
    assert parse(b"") is None


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), b"bytes", {1, 2}, datetime.date(2026, 1, 1), "\ud800"], ids=repr
)
def test_what_has_no_json_form_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        encode_arguments({"value": value})
    assert caught.value.reason is Reason.INVALID_JSON


def test_a_circle_and_a_list_of_arguments_are_refused() -> None:
    circle: dict[str, Any] = {}
    circle["itself"] = circle
    for arguments in (circle, ["not", "a", "mapping"]):
        with pytest.raises(InvalidInputError):
            encode_arguments(arguments)  # type: ignore[arg-type]


def test_too_much_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidInputError) as caught:
        encode_arguments({"text": "x" * MAX_ARGUMENT_BYTES})
    assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE


@pytest.mark.parametrize("payload", [b"{", b"NaN", b"\xff"])
def test_a_result_that_is_no_json_is_not_a_success(payload: bytes) -> None:
    with pytest.raises(InternalToolError) as caught:
        parse(payload)
    assert caught.value.reason is Reason.RESULT_INVALID


def test_the_order_of_keys_is_kept() -> None:
    assert dump({"b": 1, "a": [None, True]}) == b'{"b":1,"a":[null,true]}'
