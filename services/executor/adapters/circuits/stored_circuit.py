"""Reads what the script keeps of a circuit. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from services.executor.domain.resilience.circuit import SLICES, CircuitState, Transition
from services.executor.domain.resilience.list_circuits import CircuitView, PastTransition, RateLimit


def read_circuit(
    name: str, document: bytes | None, changes: bytes | None, limits: Iterable[tuple[bytes, float]], now: float
) -> CircuitView:
    """Return a circuit as it is at a time in milliseconds. One without a document is closed and had no calls lately."""
    stored: dict[str, Any] = json.loads(document or b"{}")
    state = CircuitState(stored.get("state", "closed"))
    past = tuple(
        PastTransition(_moment(at), Transition(CircuitState(before), CircuitState(after)))
        for at, before, after in json.loads(changes or b"[]")
    )
    calls, failed, slow = _window(stored, now)
    return CircuitView(
        name=name,
        state=state,
        since=past[0].at if past else None,
        retry_at=_moment(stored["until_time"]) if state is CircuitState.OPEN and "until_time" in stored else None,
        calls=calls,
        failed=failed,
        slow=slow,
        shared=True,
        changes=past,
        limits=tuple(RateLimit(party.decode(), _moment(until)) for party, until in limits if until > now),
    )


def _window(stored: dict[str, Any], now: float) -> tuple[int, int, int]:
    """Return the calls, failures and slow calls of the window, which a closed circuit counts."""
    window = stored.get("window")
    if not window:
        return 0, 0, 0
    oldest = now // (window / SLICES) - SLICES
    counted = [slice_[1:] for slice_ in stored.get("slices") or () if slice_[0] > oldest]
    calls, failed, slow = (sum(int(each[column]) for each in counted) for column in range(3))
    return calls, failed, slow


def _moment(milliseconds: float) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1e3, UTC)
