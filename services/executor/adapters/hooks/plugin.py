"""Hooks that run in this process: functions of the deployment's own packages, as trusted as the executor itself."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import orjson

from libs.common.errors import MeshError
from libs.common.json.jsonio import dump, parse
from libs.common.telemetry.log import Log
from services.executor.domain.hooks.answers import HookFailedError
from services.executor.domain.scheduling.heavy_work import WorkShare

Function = Callable[[dict[str, Any]], Awaitable[Any]]


def load_plugin(entry_point: str) -> Function:
    """Import the function `module:function`.

    Raises ValueError if it is missing or not async, which would block the loop.
    """
    module, _, name = entry_point.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:
        # An import can raise anything, and the process must not start with a hook that it cannot call.
        raise ValueError(f"cannot be loaded: {type(error).__name__}") from error
    if not inspect.iscoroutinefunction(function):
        raise ValueError("is not an async function")
    loaded: Function = function
    return loaded


class Plugin:
    """Calls an async function as a hook."""

    def __init__(self, name: str, function: Function, *, max_bytes: int) -> None:
        self._name, self._function, self._max_bytes = name, function, max_bytes
        self._log: Log | None = None

    def attach(self, log: Log) -> None:
        """Set the log for failures."""
        self._log = log

    async def ask(self, event: dict[str, Any], share: WorkShare) -> Any:
        """Return the function's answer. It gets a copy of the event, which it may modify and keep."""
        copy = await share.run_unless_light(event, partial(_deep_copy, event))
        try:
            answer = await self._function(copy)
        except asyncio.CancelledError as cause:
            if _is_canceled():
                raise
            # The function awaited something that was canceled; the call itself was not.
            raise self._crash_error(cause) from cause
        except (Exception, SystemExit) as cause:
            raise self._crash_error(cause) from cause
        return self._validate(answer)

    async def close(self) -> None:
        """Do nothing: a plugin holds no connection."""

    def _crash_error(self, cause: BaseException) -> HookFailedError:
        if self._log is not None:
            self._log.error("hook failed", hook=self._name, cause=cause)
        return HookFailedError("crashed")

    def _validate(self, answer: Any) -> Any:
        try:
            return parse(dump(answer), max_bytes=self._max_bytes)
        except MeshError as error:
            raise HookFailedError("answer_invalid") from error


def _is_canceled() -> bool:
    """Return whether the current task itself is being canceled, by its caller or by the hook's timeout."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _deep_copy(event: dict[str, Any]) -> dict[str, Any]:
    """Copy an event of any size.

    A size limit here would let large calls bypass the hook; inputs are bounded earlier.
    """
    copy: dict[str, Any] = orjson.loads(dump(event))
    return copy
