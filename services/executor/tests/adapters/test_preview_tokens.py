"""Preview tokens: bound to a call, valid for a limited time, accepted by executors with the same keys."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from libs.common.sealing import KEY_BYTES, Seal
from libs.common.testing.clock import ManualClock
from services.executor.adapters.preview_tokens import VALID, SealedPreviewTokens

START = datetime(2026, 11, 1, tzinfo=UTC)


def tokens(clock: ManualClock, key: bytes = b"k") -> SealedPreviewTokens:
    return SealedPreviewTokens(Seal([key * KEY_BYTES]), clock)


def test_a_token_is_valid_for_its_call_at_every_executor() -> None:
    clock = ManualClock(START)
    token, expires = tokens(clock).issue("facts")
    assert expires == START + VALID
    assert tokens(clock).accepts(token, "facts")


def test_a_token_is_invalid_for_another_call() -> None:
    clock = ManualClock(START)
    token, _ = tokens(clock).issue("facts")
    assert not tokens(clock).accepts(token, "other facts")


def test_a_token_expires() -> None:
    clock = ManualClock(START)
    token, _ = tokens(clock).issue("facts")
    clock.advance(VALID.total_seconds() - 1)
    assert tokens(clock).accepts(token, "facts")
    clock.advance(timedelta(seconds=1).total_seconds())
    assert not tokens(clock).accepts(token, "facts")


@pytest.mark.parametrize("token", ["", "x", "ä", "AAAA", "A" * 1024, "AQ==\n"])
def test_a_forged_token_is_invalid(token: str) -> None:
    assert not tokens(ManualClock(START)).accepts(token, "facts")


def test_a_token_of_other_keys_is_invalid() -> None:
    clock = ManualClock(START)
    token, _ = tokens(clock).issue("facts")
    assert not tokens(clock, b"j").accepts(token, "facts")


def test_data_sealed_for_another_purpose_is_not_a_token() -> None:
    clock = ManualClock(START)
    seal = Seal([b"k" * KEY_BYTES])
    other = base64.urlsafe_b64encode(seal.seal((START + VALID).isoformat().encode(), "facts")).decode()
    assert not SealedPreviewTokens(seal, clock).accepts(other, "facts")
