"""The invocations under way, so that whoever loses its authority loses them too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Caller


class Running:
    """Knows which task works on which invocation."""

    def __init__(self) -> None:
        self._tasks: dict[Invocation, asyncio.Task[Any] | None] = {}
        self._withdrawn: set[Invocation] = set()

    def begin(self, invocation: Invocation) -> None:
        """Note an invocation of the current task."""
        self._tasks[invocation] = asyncio.current_task()

    def end(self, invocation: Invocation) -> None:
        """Forget an invocation; nobody withdraws it any more. Forgetting twice forgets once."""
        self._tasks.pop(invocation, None)
        self._withdrawn.discard(invocation)

    def withdraw(self, revoked: Callable[[Caller], bool]) -> int:
        """Cancel what runs on authority that was taken back; return how many. What has already ended may still answer."""
        found = [
            (invocation, task)
            for invocation, task in self._tasks.items()
            if not invocation.closed and invocation not in self._withdrawn and revoked(invocation.request.caller)
        ]
        for invocation, task in found:
            self._withdrawn.add(invocation)
            if task is not None:
                task.cancel()
        return len(found)

    def withdrawn(self, invocation: Invocation) -> bool:
        """Say whether an invocation was canceled because its authority was taken back, and nobody else wants it canceled; the
        cancellation is then over."""
        if invocation not in self._withdrawn:
            return False
        task = self._tasks[invocation]
        return task is None or task.uncancel() == 0
