"""Signatures over documents, and texts that are none."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from libs.common.signed_documents import is_signed_by, public_key_of, sign

KEY = Ed25519PrivateKey.generate()


def test_a_signature_holds_for_its_key_and_payload() -> None:
    signature = sign(KEY, b"payload")
    assert (len(public_key_of(KEY)), len(signature)) == (43, 86)
    assert is_signed_by(public_key_of(KEY), b"payload", signature)
    assert not is_signed_by(public_key_of(KEY), b"payload.", signature)
    assert not is_signed_by(public_key_of(Ed25519PrivateKey.generate()), b"payload", signature)


@pytest.mark.parametrize("text", ["", "a", "*", "ä", "A" * 43, "A" * 86, "A" * 10_000])
def test_what_is_no_key_or_signature_is_not_accepted(text: str) -> None:
    assert not is_signed_by(text, b"payload", sign(KEY, b"payload"))
    assert not is_signed_by(public_key_of(KEY), b"payload", text)
