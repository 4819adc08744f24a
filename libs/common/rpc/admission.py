"""Fourth stage: is there time, and is there room?"""

from __future__ import annotations

import time
from collections.abc import Callable

from libs.common.call_context import Call, margin
from libs.common.deadline_timer import DeadlineTimers
from libs.common.errors import MeshError, Reason
from libs.common.rpc.policy import PLATFORM, Policy


class Admission:
    """Refuses calls that cannot end in time or that exceed what the process can carry; bounds the rest."""

    def __init__(self, policy: Policy, max_concurrent_calls: int) -> None:
        self._policy = {**PLATFORM, **policy}
        self._limit = max_concurrent_calls
        self._under_way = 0
        self._timeboxes = DeadlineTimers()

    def admitting(self, method: str) -> Callable[[Call], None]:
        """Return what lets calls of a method in, or raises to refuse."""
        row = self._policy.get(method)
        default = None if row is None else row.deadline
        # A stream that stays open holds no place, whatever deadline it was given: it would starve the calls that come and go.
        place = default is not None

        def admit(call: Call) -> None:
            now = time.monotonic()
            if call.deadline is None:
                if default is None:
                    return
                call.deadline = now + default
            remaining = call.deadline - now
            if remaining <= 0:
                raise MeshError(Reason.DEADLINE_EXCEEDED)
            if place and self._under_way >= self._limit:
                raise MeshError(Reason.OVERLOADED, retry_after=0.1)
            # Ends a little early, so that the answer still reaches a caller who is about to hang up.
            call.timebox = self._timeboxes.open(remaining - margin(remaining), now)
            call.timebox.place = place
            self._under_way += place

        return admit

    def leave(self, call: Call, error: BaseException | None) -> BaseException | None:
        """Give a call's place back, if it had one; return what it ends with."""
        box = call.timebox
        if box is None:
            return error
        self._under_way -= box.place
        self._timeboxes.close(box)
        return box.outcome(error) if box.expired else error
