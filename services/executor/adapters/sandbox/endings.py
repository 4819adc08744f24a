"""From how a confined process ended to the error that its caller gets."""

from __future__ import annotations

from libs.common.errors import MeshError
from services.executor.adapters.sandbox.port import End, Ending
from services.executor.domain import errors

_LIMITS = {End.CPU_LIMIT: "cpu", End.PROCESS_LIMIT: "processes", End.FILE_LIMIT: "file_size"}


def error_of(ending: Ending, seconds: float) -> MeshError:
    """Return the error that an end means; `seconds` is what the run was allowed. Never carries what the process wrote.

    A forbidden system call is TOOL_CRASHED with `cause` = forbidden_call: to its caller the process ended where nobody expected it
    to, and no limit that anyone could raise would have let it go on. The network's own error stays the network's.
    """
    if ending.kind in _LIMITS:
        return errors.limit_reached(_LIMITS[ending.kind])
    match ending.kind:
        case End.EXITED:
            return errors.exited(ending.code)
        case End.OUT_OF_MEMORY:
            return errors.out_of_memory()
        case End.KILLED:
            return errors.tool_timed_out(seconds)
        case End.NEVER_BEGAN:
            return errors.sandbox_failed("the sandbox could not be made")
        case End.FORBIDDEN_CALL:
            return errors.crashed("forbidden_call")
        case _:
            return errors.crashed(f"signal_{ending.code}")
