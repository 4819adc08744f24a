"""Backoff: pauses grow to a maximum, stay within their jitter, and start again after a success."""

from __future__ import annotations

from libs.common.runtime.backoff import Backoff


def test_backoff_grows_to_its_longest_pause() -> None:
    backoff = Backoff(1.0, 5.0, jitter=0.0)
    assert [backoff.next_pause() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_backoff_starts_again_after_a_reset() -> None:
    backoff = Backoff(1.0, 5.0, jitter=0.0)
    backoff.next_pause()
    backoff.reset()
    assert backoff.next_pause() == 1.0


def test_backoff_draws_each_pause_from_the_jittered_share() -> None:
    pauses = [Backoff(8.0, 8.0, jitter=0.25).next_pause() for _ in range(200)]
    assert all(6.0 <= pause <= 8.0 for pause in pauses)
    assert len(set(pauses)) > 1
