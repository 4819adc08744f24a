"""The invocations under way, so that they can be stopped: by whoever takes their authority back, or because a sibling failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from libs.common.errors import MeshError
from services.executor.domain import errors
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Caller, Request


class Running:
    """Knows which task works on which invocation."""

    def __init__(self) -> None:
        self._tasks: dict[Invocation, asyncio.Task[Any] | None] = {}
        self._stopped: dict[Invocation, MeshError] = {}

    def begin(self, invocation: Invocation) -> None:
        """Note an invocation of the current task."""
        self._tasks[invocation] = asyncio.current_task()

    def end(self, invocation: Invocation) -> None:
        """Forget an invocation; nobody stops it any more. Forgetting twice forgets once."""
        self._tasks.pop(invocation, None)
        if self._stopped:
            self._stopped.pop(invocation, None)

    def withdraw(self, revoked: Callable[[Caller], bool]) -> int:
        """Cancel what runs on authority that was taken back; return how many. What has already ended may still answer."""
        found = [each for each in self._tasks if self._stoppable(each) and revoked(each.request.caller)]
        for invocation in found:
            self._stop(invocation, errors.authority_revoked())
        return len(found)

    def stop(self, request: Request, error: MeshError) -> bool:
        """Cancel the invocation of this very request and answer it with the error. Say whether it was under way; one that is just ending
        is let be, for it would be answered with what did not become of it."""
        for invocation in self._tasks:
            if invocation.request is request and self._stoppable(invocation) and not invocation.ending:
                self._stop(invocation, error)
                return True
        return False

    def stop_invocation(self, invocation_id: str, error: Callable[[Invocation], MeshError | None]) -> None:
        """Cancel the invocation of this id, if it is under way, and answer it with the error; where there is none, let it be."""
        for invocation in self._tasks:
            if invocation.invocation_id == invocation_id and self._stoppable(invocation):
                if (why := error(invocation)) is not None:
                    self._stop(invocation, why)
                return

    def stopped(self, invocation: Invocation) -> MeshError | None:
        """Return why an invocation was stopped, if nobody else wants it canceled; the cancellation is then over."""
        error = self._stopped.get(invocation)
        if error is None:
            return None
        task = self._tasks[invocation]
        return error if task is None or task.uncancel() == 0 else None

    def _stoppable(self, invocation: Invocation) -> bool:
        return not invocation.closed and invocation not in self._stopped

    def _stop(self, invocation: Invocation, error: MeshError) -> None:
        self._stopped[invocation] = error
        task = self._tasks[invocation]
        if task is not None:
            task.cancel()
