"""What a store did not hear is said again: until it has, or until it no longer matters."""

from __future__ import annotations

import asyncio

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.runtime.retry import is_transient, retry_until

AWAY = MeshError(Reason.SERVICE_UNAVAILABLE)


class Store:
    """Gives the prepared answers in order, then succeeds."""

    def __init__(self, *failures: Exception | None) -> None:
        self.failures, self.asked = list(failures), 0

    async def hear(self) -> None:
        self.asked += 1
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure


async def test_it_is_said_until_it_is_heard() -> None:
    store = Store(AWAY, TimeoutError())
    await retry_until(store.hear, attempt_timeout=5.0, time_budget=60.0)
    assert store.asked == 3


@pytest.mark.parametrize("failure", [KeyError("i"), MeshError(Reason.INVALID_REQUEST), TypeError()])
async def test_what_no_repetition_mends_is_raised(failure: Exception) -> None:
    store = Store(AWAY, failure)
    with pytest.raises(type(failure)):
        await retry_until(store.hear, attempt_timeout=5.0, time_budget=60.0)
    assert store.asked == 2


async def test_what_hangs_is_left_and_said_again() -> None:
    heard = asyncio.Event()

    async def hangs_once() -> None:
        if not heard.is_set():
            heard.set()
            await asyncio.Event().wait()

    await asyncio.wait_for(retry_until(hangs_once, attempt_timeout=0.01, time_budget=60.0), 20)


async def test_it_ends_with_its_time() -> None:
    await asyncio.wait_for(retry_until(Store(*[AWAY] * 100).hear, attempt_timeout=5.0, time_budget=0.2), 20)


@pytest.mark.parametrize(
    ("cause", "passes"), [(AWAY, True), (TimeoutError(), True), (MeshError(Reason.INVALID_REQUEST), False)]
)
def test_what_may_pass(cause: Exception, passes: bool) -> None:
    assert is_transient(cause) is passes
