"""Hooks that run in this process: functions of the deployment's own packages, trusted like the executor itself."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from libs.common.errors import MeshError
from libs.common.json.jsonio import dump, parse
from libs.common.telemetry.log import Log
from services.executor.domain.hooks.answers import HookFailedError

Function = Callable[[dict[str, Any]], Awaitable[Any]]


def load(entry_point: str) -> Function:
    """Return the function that `module:function` names. Raises ValueError when there is none, or it would hold up everybody else."""
    module, _, name = entry_point.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:
        # Whatever a module does while it is imported: the process must not start with a hook that it cannot ask.
        raise ValueError(f"cannot be loaded: {type(error).__name__}") from error
    if not inspect.iscoroutinefunction(found):
        raise ValueError("is not an async function")
    function: Function = found
    return function


class Plugin:
    """A function that answers for a hook."""

    def __init__(self, name: str, function: Function, *, max_bytes: int) -> None:
        self._name, self._function, self._max_bytes = name, function, max_bytes
        self._log: Log | None = None

    def attach(self, log: Log) -> None:
        """Have it say what goes wrong."""
        self._log = log

    async def ask(self, event: dict[str, Any]) -> Any:
        """Return what the function answers. It gets a copy: what it does to it changes nothing here, nor does what it keeps."""
        try:
            answered = await self._function(_copied(event))
        except asyncio.CancelledError as cause:
            if _is_canceled():
                raise
            # Of something that it waited for: nobody wants the call itself to end.
            raise self._crashed(cause) from cause
        except (Exception, SystemExit) as cause:
            raise self._crashed(cause) from cause
        return self._bounded(answered)

    async def close(self) -> None:
        """There is nothing to close."""

    def _crashed(self, cause: BaseException) -> HookFailedError:
        if self._log is not None:
            self._log.error("a hook failed", hook=self._name, cause=cause)
        return HookFailedError("crashed")

    def _bounded(self, answered: Any) -> Any:
        try:
            return parse(dump(answered), max_bytes=self._max_bytes)
        except MeshError as error:
            raise HookFailedError("answer_invalid") from error


def _is_canceled() -> bool:
    """Say whether somebody wants the call to end, or the time of the hook is over."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _copied(event: dict[str, Any]) -> dict[str, Any]:
    """Return a copy, whatever its size: arguments and results were bounded where they came in, and a hook that could be passed by with
    something large would guard nothing."""
    copied: dict[str, Any] = orjson.loads(dump(event))
    return copied
