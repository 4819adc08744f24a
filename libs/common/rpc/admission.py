"""Fourth stage: is there time, and is there room?"""

from __future__ import annotations

import time
from typing import Any

from libs.common.errors import MeshError, Reason
from libs.common.rpc.call import Call, margin
from libs.common.rpc.policy import PLATFORM, Policy
from libs.common.rpc.timebox import Timeboxes


class Admission:
    """Refuses calls that cannot end in time or that exceed what the process can carry; bounds the rest."""

    def __init__(self, policy: Policy, max_concurrent_calls: int) -> None:
        self._policy = {**PLATFORM, **policy}
        self._limit = max_concurrent_calls
        self._under_way = 0
        self._timeboxes = Timeboxes()

    def enter(self, call: Call, context: Any) -> None:
        now = time.monotonic()
        if call.deadline is None:
            default = self._policy[call.method].deadline
            if default is None:
                # A stream that stays open holds no place: it would starve the calls that come and go.
                return
            call.deadline = now + default
        remaining = call.deadline - now
        if remaining <= 0:
            raise MeshError(Reason.DEADLINE_EXCEEDED)
        if self._under_way >= self._limit:
            raise MeshError(Reason.OVERLOADED, retry_after=0.1)
        # Ends a little early, so that the answer still reaches a caller who is about to hang up.
        call.timebox = self._timeboxes.open(remaining - margin(remaining), now)
        self._under_way += 1

    def leave(self, call: Call, context: Any, error: BaseException | None) -> BaseException | None:
        if call.timebox is None:
            return error
        self._under_way -= 1
        self._timeboxes.close(call.timebox)
        return call.timebox.outcome(error)
