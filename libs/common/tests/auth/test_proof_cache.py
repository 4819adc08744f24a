"""The memory of used proofs: bounded, fair, and never forgetting one that could be shown again."""

from __future__ import annotations

import pytest

from libs.common.auth.proof_cache import ProofCache
from libs.common.errors import MeshError, Reason

NOW, SECONDS = 1_800_000_000.0, 70.0


def fill(cache: ProofCache, subject: str, most: int, now: float = NOW) -> int:
    """Use new proofs until one is refused; return how many were accepted."""
    for number in range(most):
        try:
            assert cache.first_time(f"{subject}{number}".encode(), subject, now)
        except MeshError:
            return number
    return most


def test_a_proof_is_new_once_until_it_has_expired() -> None:
    cache = ProofCache(SECONDS)
    assert cache.first_time(b"a", "alice", NOW)
    assert not cache.first_time(b"a", "alice", NOW + SECONDS - 1)
    assert not cache.first_time(b"a", "bob", NOW)
    assert cache.first_time(b"a", "alice", NOW + SECONDS + 1)


def test_one_subject_cannot_fill_the_cache() -> None:
    cache = ProofCache(SECONDS, limit=100)
    assert fill(cache, "mallory", 1000) == 50
    assert fill(cache, "alice", 10) == 10


def test_there_is_room_left_after_any_number_of_subjects() -> None:
    cache = ProofCache(SECONDS, limit=100)
    for number in range(5):
        fill(cache, f"mallory-{number}", 1000)
    assert fill(cache, "alice", 1) == 1


def test_a_full_cache_forgets_nothing_that_is_valid_and_has_room_again_later() -> None:
    cache = ProofCache(SECONDS, limit=100)
    fill(cache, "mallory", 1000)
    assert not cache.first_time(b"mallory0", "mallory", NOW + 1)
    with pytest.raises(MeshError) as caught:
        cache.first_time(b"another", "mallory", NOW + 1)
    assert caught.value.reason is Reason.OVERLOADED
    assert fill(cache, "mallory", 1000, NOW + SECONDS + 1) == 50
