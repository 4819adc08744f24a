"""The worker process: loads one function of a tool pack and serves calls to it one at a time.

It exchanges frames on its original standard input and output. The tool gets neither: what it prints is sent as frames
of its call, and what it or its child processes write to the descriptors goes to standard error.
"""

from __future__ import annotations

import os
import signal
import sys
from types import GeneratorType

from . import frames
from .bridge import start_bridge
from .call import Call, InputUnavailableError, ToolFailure
from .channel import CallChannel, Canceled
from .egress import SOCKET
from .output import LOG, ToolOutput
from .reset import WorkerReset, resident_bytes
from .responses import ResponsePipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NOT_ALONE, RESET_FAILED = 70, 71
_MAX_PARTS = 100_000
_MAX_DETAIL = 2000


def main() -> None:
    """Serve until the executor closes the pipe."""
    requests, descriptor = _take_descriptors()
    responses = ResponsePipe(descriptor)
    if not WorkerReset.is_alone():
        # Between calls all other processes are killed; they must belong to this sandbox.
        os._exit(NOT_ALONE)
    bridge = start_bridge(SOCKET) if os.path.exists(SOCKET) else None  # noqa: PTH110  (a cold start without pathlib)
    setup = frames.receive(requests)
    output = ToolOutput(responses)
    output.install()
    try:
        function = _load(setup)
    except BaseException as cause:
        _send(responses, {"broken": type(cause).__name__, "detail": _traceback_tail(cause)})
        return
    termination = Termination()
    resetter = WorkerReset(bridge)
    forecast = getattr(function, "preview", None)
    while True:
        _send(responses, {"ready": resident_bytes(), "previews": forecast is not None})
        request = frames.receive(requests)
        if request is None:
            return
        _set_cpu_limit(request["cpu"])
        output.begin(request["id"])
        termination.channel = channel = _open_channel(request, requests, responses)
        call = Call(
            request,
            lambda text: output.write(LOG, text),
            channel,
            frames.receive(requests) if channel is not None and request["channel"]["resumes"] else None,
        )
        response, last = _respond(forecast if request["preview"] and forecast else function, request, call)
        termination.channel = None
        if channel is not None:
            channel.flush()
        output.end()
        responses.send(frames.frame(response))
        if last:
            return
        try:
            resetter.reset()
        except Exception:
            # No call is running; the next call finds this process ended and gets another.
            os._exit(RESET_FAILED)


def _take_descriptors() -> tuple[int, int]:
    requests, responses = os.dup(0), os.dup(1)
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.close(devnull)
    os.dup2(2, 1)
    return requests, responses


class Termination:
    """Handles SIGTERM: a call of a job that can be canceled ends with Canceled, any other at once."""

    def __init__(self) -> None:
        self.channel: CallChannel | None = None
        signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, number: int, _: object) -> None:
        if self.channel is None:
            os._exit(128 + number)
        self.channel.terminate()


def _open_channel(request: dict[str, Any], requests: int, responses: ResponsePipe) -> CallChannel | None:
    settings = request.get("channel")
    return None if settings is None else CallChannel(request["id"], settings, requests, responses)


def _send(responses: ResponsePipe, message: dict[str, Any]) -> None:
    responses.send(frames.frame(frames.encode(message)))


def _load(setup: dict[str, Any]) -> Callable[..., Any]:
    import importlib

    sys.path.extend(setup["paths"])
    target: Any = importlib.import_module(setup["module"])
    for name in setup["function"].split("."):
        target = getattr(target, name)
    if not callable(target):
        raise TypeError("not a function")
    function: Callable[..., Any] = target
    return function


def _respond(function: Callable[..., Any], request: dict[str, Any], call: Call) -> tuple[bytes, bool]:
    """Return the response to a call, and whether the process should exit after it."""
    failed: dict[str, Any]
    last = False
    try:
        value = _invoke(function, request["arguments"], call)
        return _success(value, call, request), False
    except ToolFailure as failure:
        failed = {"kind": "partial" if failure.partial else "failure", "message": failure.message[:_MAX_DETAIL]}
    except _InterruptedError as interrupted:
        failed = {
            "kind": "stream",
            "message": "",
            "detail": _traceback_tail(interrupted.cause),
            "parts": interrupted.parts,
        }
    except Canceled:
        failed, last = {"kind": "canceled", "message": ""}, True
    except InputUnavailableError as unavailable:
        failed = {"kind": "input", "message": "", "detail": _traceback_tail(unavailable)}
    except MemoryError:
        failed, last = {"kind": "memory", "message": ""}, True
    except (OSError, RuntimeError) as cause:
        failed = {"kind": "error", "message": type(cause).__name__[:100], "detail": _traceback_tail(cause)}
        if limit := _limit_of(cause):
            failed, last = {**failed, "kind": "limit", "message": limit}, True
    except BaseException as cause:
        failed = {"kind": "error", "message": type(cause).__name__[:100], "detail": _traceback_tail(cause)}
        # SystemExit and the like: the tool wants to exit, and its state is unknown.
        last = not isinstance(cause, Exception)
    return _failure(failed, call, request), last


def _success(value: Any, call: Call, request: dict[str, Any]) -> bytes:
    try:
        body = frames.encode(value)
    except MemoryError:
        raise
    except Exception as cause:
        return _failure({"kind": "result", "message": "", "detail": _traceback_tail(cause)}, call, request)
    if len(body) > request["limit"]:
        return _failure({"kind": "size", "message": str(len(body))}, call, request)
    head = frames.encode({"id": request["id"], "notes": call.notes})
    return head[:-1] + b',"value":' + body + b"}"


def _failure(failed: dict[str, Any], call: Call, request: dict[str, Any]) -> bytes:
    # What the call did before it failed is still reported.
    reported = {name: call.notes[name] for name in ("effects", "costs")}
    return frames.encode({"id": request["id"], "failed": failed, "notes": reported})


class _InterruptedError(Exception):
    """A generator failed after its first part."""

    def __init__(self, cause: Exception, parts: int) -> None:
        super().__init__()
        self.cause, self.parts = cause, parts


def _invoke(function: Callable[..., Any], arguments: dict[str, Any], call: Call) -> Any:
    value = function(arguments, call)
    return _collect(value) if isinstance(value, GeneratorType) else value


def _collect(stream: GeneratorType[Any, None, Any]) -> Any:
    """Run a generator to its end; its return value is the result, or its parts if it returns nothing."""
    parts: list[Any] = []
    try:
        while len(parts) <= _MAX_PARTS:
            parts.append(next(stream))
        raise ToolFailure(f"more than {_MAX_PARTS} parts")
    except StopIteration as end:
        return {"parts": parts} if end.value is None else end.value
    except MemoryError:
        raise
    except Exception as cause:
        if not parts:
            raise
        raise _InterruptedError(cause, len(parts)) from cause


def _limit_of(cause: BaseException) -> str:
    """Return the resource limit that an exception indicates; empty if none."""
    import errno

    if isinstance(cause, OSError):
        return {errno.EAGAIN: "processes", errno.EFBIG: "file_size", errno.ENOSPC: "file_size"}.get(
            cause.errno or 0, ""
        )
    return "processes" if str(cause) == "can't start new thread" else ""


def _set_cpu_limit(seconds: float) -> None:
    """Allow this call so many CPU seconds beyond what earlier calls used."""
    import resource

    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    # RLIMIT_CPU has a resolution of one second.
    soft = int(used + seconds + 0.999)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _traceback_tail(cause: BaseException) -> str:
    """Return the end of the traceback for the operator's log; it may contain data that the caller must not see."""
    import traceback

    try:
        text = "".join(traceback.format_exception(cause, limit=8))
    except Exception:
        text = type(cause).__name__
    return text.encode("utf-8", "replace")[-_MAX_DETAIL:].decode("utf-8", "ignore")
