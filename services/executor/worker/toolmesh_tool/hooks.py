"""What of one call the interpreter or the kernel would run during the next: handlers, profilers, tracers, callbacks."""

from __future__ import annotations

import builtins
import gc
import json
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_SIGNAL_MASKS = (b"SigBlk:", b"SigIgn:", b"SigCgt:")


class InterpreterHooks:
    """Records the hooks before the first call and restores them."""

    def __init__(self) -> None:
        self._handlers = _handlers()
        self._masks = _signal_masks()
        self._profile, self._trace = sys.getprofile(), sys.gettrace()
        self._callbacks = list(gc.callbacks)
        self._modules = {module: dict(vars(module)) for module in _own_modules()}
        self._added_audit_hook = False
        # An audit hook cannot be removed, so a call that adds one is the last of its worker.
        sys.addaudithook(self._watch)

    def restore(self) -> bool:
        """Restore the hooks; return False if a hook of the call remains."""
        sys.setprofile(self._profile)
        sys.settrace(self._trace)
        gc.callbacks[:] = self._callbacks
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        return not (
            self._added_audit_hook
            or _has_thread_hooks()
            or _has_monitoring()
            or _has_posix_timers()
            # Handlers that native code installed, and blocked signals.
            or _signal_masks() != self._masks
            or any(_is_changed(module, before) for module, before in self._modules.items())
        )

    def _watch(self, event: str, _: tuple[Any, ...]) -> None:
        if event == "sys.addaudithook":
            self._added_audit_hook = True


def _own_modules() -> list[ModuleType]:
    """Return the modules through which the next call passes."""
    return [builtins, json, os, sys.modules["json.decoder"], *(_loaded(__package__ or "toolmesh_tool"))]


def _loaded(package: str) -> list[ModuleType]:
    return [module for name, module in sys.modules.items() if name.partition(".")[0] == package.partition(".")[0]]


def _is_changed(module: ModuleType, before: dict[str, Any]) -> bool:
    """Return whether a name of a module was replaced. By identity: an object decides itself what it equals."""
    now = vars(module)
    return any(now.get(name) is not value for name, value in before.items())


def _handlers() -> dict[int, Any]:
    """Return the signal handlers that Python can set again."""
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    fixed = (signal.SIGKILL, signal.SIGSTOP)
    return {number: handler for number, handler in handlers.items() if handler is not None and number not in fixed}


def _signal_masks() -> list[bytes]:
    """Return which signals are blocked, ignored and caught, as the kernel has it; empty where it does not say."""
    with open("/proc/self/status", "rb") as status:  # noqa: PTH123  (importing pathlib slows down a cold start)
        return [line for line in status if line.startswith(_SIGNAL_MASKS)]


def _has_posix_timers() -> bool:
    try:
        with open("/proc/self/timers", "rb") as timers:  # noqa: PTH123
            return bool(timers.read(1))
    except OSError:
        return False


def _has_thread_hooks() -> bool:
    threading: Any = sys.modules.get("threading")
    return threading is not None and (threading.getprofile() is not None or threading.gettrace() is not None)


def _has_monitoring() -> bool:
    """Return whether a tool of `sys.monitoring` (Python 3.12) is registered."""
    monitoring: Any = getattr(sys, "monitoring", None)
    return monitoring is not None and any(monitoring.get_tool(number) is not None for number in range(6))
