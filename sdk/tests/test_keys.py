"""Derived keys: the same intent always has the same key, another intent never has it."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from toolmesh_sdk import InvalidInputError, canonical_json, derive_idempotency_key
from toolmesh_sdk.keys import resolve_idempotency_key

from libs.common.json.canonical import canonical

INTENT = ("session-1", "acme.send_email", "step-3")


def test_the_rule_is_the_documented_one() -> None:
    message = b""
    for part in (*(text.encode() for text in INTENT), b'{"a":1,"to":"x"}'):
        message += len(part).to_bytes(8, "big") + part
    expected = hmac.new(b"secret", message, hashlib.sha256).hexdigest()
    assert derive_idempotency_key("secret", *INTENT, {"to": "x", "a": 1}) == expected
    assert derive_idempotency_key(b"secret", *INTENT, {"a": 1.0, "to": "x"}) == expected


def test_the_rule_never_changes() -> None:
    # A key outlives the process that made it, so this value is a promise to every release after this one.
    key = derive_idempotency_key("secret", *INTENT, {"to": "grüße", "n": [2**53 + 1, 0.5]})
    assert key == "d450837237cfce737aefd7700be15f6efc9bf766ae98c932e8e5bab1a3f4c995"


@pytest.mark.parametrize(
    "other",
    [
        ("other", *INTENT, {"a": 1}),
        ("secret", "session-2", *INTENT[1:], {"a": 1}),
        ("secret", INTENT[0], "acme.send_mail", INTENT[2], {"a": 1}),
        ("secret", *INTENT[:2], "step-4", {"a": 1}),
        ("secret", *INTENT, {"a": 2}),
        ("secret", *INTENT, {}),
        ("secret", "session-1acme", ".send_email", INTENT[2], {"a": 1}),
    ],
)
def test_another_intent_has_another_key(other: tuple[Any, ...]) -> None:
    assert derive_idempotency_key(*other) != derive_idempotency_key("secret", *INTENT, {"a": 1})


def test_no_arguments_and_the_empty_object_are_one_intent() -> None:
    assert derive_idempotency_key("s", *INTENT) == derive_idempotency_key("s", *INTENT, {})


def test_arguments_without_a_json_form_have_no_key() -> None:
    with pytest.raises(InvalidInputError):
        derive_idempotency_key("s", *INTENT, {"x": float("nan")})


def test_a_call_carries_the_key_it_was_given_or_the_key_of_its_step_or_none() -> None:
    arguments = {"a": 1}
    intent = ("secret", INTENT[0], INTENT[1], arguments)
    derived = derive_idempotency_key("secret", *INTENT, arguments)
    assert resolve_idempotency_key(*intent, step=INTENT[2], explicit=None) == derived
    assert resolve_idempotency_key(*intent, step=None, explicit="mine") == "mine"
    assert resolve_idempotency_key(*intent, step=None, explicit=None) == ""


@pytest.mark.parametrize(
    ("secret", "step", "given"), [("", "step-3", None), (b"", "step-3", None), ("secret", "", None), ("s", "a", "k")]
)
def test_a_step_without_a_secret_or_beside_a_key_is_a_mistake(secret: Any, step: str, given: str | None) -> None:
    with pytest.raises(ValueError):
        resolve_idempotency_key(secret, "session", "tool", {}, step=step, explicit=given)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_the_canonical_form_is_that_of_rfc_8785_and_of_the_mesh(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value) == canonical(value)


def test_integers_past_a_double_keep_their_digits() -> None:
    assert canonical_json([2**53 + 1, 2**64 - 1]) == b"[9007199254740993,18446744073709551615]"
