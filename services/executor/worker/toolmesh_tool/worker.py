"""The worker: loads one function of a tool pack, and answers calls to it one at a time until nobody sends another.

It speaks in frames on what were its standard input and output. The tool gets neither: what it prints goes to standard error.
"""

from __future__ import annotations

import os
import sys
from types import GeneratorType

from . import frames
from .call import Call, ToolFailure
from .reset import Tidier, memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NOT_ALONE, NOT_TIDY = 70, 71
_MOST_PARTS = 100_000
_DETAIL = 2000


def main() -> None:
    """Serve until the other side hangs up."""
    requests, answers = _take_descriptors()
    if not Tidier.alone():
        # Between calls everything else in the process table is killed; that must never be anybody else's.
        os._exit(NOT_ALONE)
    opening = frames.receive(requests)
    try:
        function = _load(opening)
    except BaseException as cause:
        frames.send(answers, frames.encoded({"broken": type(cause).__name__, "detail": _told(cause)}))
        return
    tidier = Tidier()
    forecast = getattr(function, "preview", None)
    while True:
        frames.send(answers, frames.encoded({"ready": memory(), "previews": forecast is not None}))
        request = frames.receive(requests)
        if request is None:
            return
        _allow_processor_time(request["cpu"])
        answer, last = _answer(forecast if request["preview"] and forecast else function, request)
        frames.send(answers, answer)
        if last:
            return
        try:
            tidier.tidy()
        except Exception:
            # Nobody waits for this process now; the next call finds it gone and gets another.
            os._exit(NOT_TIDY)


def _take_descriptors() -> tuple[int, int]:
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _load(opening: dict[str, Any]) -> Callable[..., Any]:
    import importlib

    sys.path.extend(opening["paths"])
    found: Any = importlib.import_module(opening["module"])
    for name in opening["function"].split("."):
        found = getattr(found, name)
    if not callable(found):
        raise TypeError("not a function")
    function: Callable[..., Any] = found
    return function


def _answer(function: Callable[..., Any], request: dict[str, Any]) -> tuple[bytes, bool]:
    """Return the answer to a call, and whether the process should end after it."""
    call = Call(request)
    failed: dict[str, Any]
    last = False
    try:
        value = _called(function, request["arguments"], call)
        return _valued(value, call, request), False
    except ToolFailure as failure:
        failed = {"kind": "partial" if failure.partial else "failure", "message": failure.message[:_DETAIL]}
    except _InterruptedError as cut:
        failed = {"kind": "stream", "message": "", "detail": _told(cut.cause), "parts": cut.parts}
    except MemoryError:
        failed, last = {"kind": "memory", "message": ""}, True
    except (OSError, RuntimeError) as cause:
        failed = {"kind": "error", "message": type(cause).__name__[:100], "detail": _told(cause)}
        if limit := _limit_behind(cause):
            failed, last = {**failed, "kind": "limit", "message": limit}, True
    except BaseException as cause:
        failed = {"kind": "error", "message": type(cause).__name__[:100], "detail": _told(cause)}
        # It wanted to leave, so it leaves: whatever made it want to may have left more than an exception.
        last = not isinstance(cause, Exception)
    return _failed(failed, call, request), last


def _valued(value: Any, call: Call, request: dict[str, Any]) -> bytes:
    try:
        body = frames.encoded(value)
    except MemoryError:
        raise
    except Exception as cause:
        return _failed({"kind": "result", "message": "", "detail": _told(cause)}, call, request)
    if len(body) > request["limit"]:
        return _failed({"kind": "size", "message": str(len(body))}, call, request)
    head = frames.encoded({"id": request["id"], "notes": call.notes})
    return head[:-1] + b',"value":' + body + b"}"


def _failed(failed: dict[str, Any], call: Call, request: dict[str, Any]) -> bytes:
    return frames.encoded({"id": request["id"], "failed": failed, "notes": {"log": call.notes["log"]}})


class _InterruptedError(Exception):
    """A stream that failed after its first part."""

    def __init__(self, cause: Exception, parts: int) -> None:
        super().__init__()
        self.cause, self.parts = cause, parts


def _called(function: Callable[..., Any], arguments: dict[str, Any], call: Call) -> Any:
    found = function(arguments, call)
    return _collected(found) if isinstance(found, GeneratorType) else found


def _collected(stream: GeneratorType[Any, None, Any]) -> Any:
    """Run a generator to its end: its return value is the result, or else its parts are."""
    parts: list[Any] = []
    try:
        while len(parts) <= _MOST_PARTS:
            parts.append(next(stream))
        raise ToolFailure(f"more than {_MOST_PARTS} parts")
    except StopIteration as end:
        return {"parts": parts} if end.value is None else end.value
    except MemoryError:
        raise
    except Exception as cause:
        if not parts:
            raise
        raise _InterruptedError(cause, len(parts)) from cause


def _limit_behind(cause: BaseException) -> str:
    """Name the limit that an exception tells of: the kernel has no other way to say that there may be no more of something."""
    import errno

    if isinstance(cause, OSError):
        return {errno.EAGAIN: "processes", errno.EFBIG: "file_size", errno.ENOSPC: "file_size"}.get(
            cause.errno or 0, ""
        )
    return "processes" if str(cause) == "can't start new thread" else ""


def _allow_processor_time(seconds: float) -> None:
    """Let this call use so much processor time beyond what its predecessors used."""
    import resource

    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    # Whole seconds are the finest that there are.
    soft = int(used + seconds + 0.999)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _told(cause: BaseException) -> str:
    """What went wrong, for the log of the mesh: never for a caller, who might read in it what is not the caller's."""
    import traceback

    try:
        text = "".join(traceback.format_exception(cause, limit=8))
    except Exception:
        text = type(cause).__name__
    return text.encode("utf-8", "replace")[-_DETAIL:].decode("utf-8", "ignore")
