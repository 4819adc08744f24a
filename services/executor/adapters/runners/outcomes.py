"""How a confined run ended, as the mesh says it."""

from __future__ import annotations

from libs.common.errors import MeshError, Violation
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.worker.frames import FrameError
from services.executor.adapters.sandbox.endings import error_of
from services.executor.adapters.sandbox.port import End, Ending
from services.executor.domain.errors import result_invalid, result_too_large, worker_lost
from services.executor.domain.model import RunRequest
from services.executor.domain.tool import Tool

_COMPLAINT = 2000


def lost(ending: Ending, work: RunRequest) -> MeshError:
    """Return why a worker that fell silent did. One that simply left, or only hung up, crashed as far as its caller knows."""
    if ending.kind in (End.EXITED, End.KILLED):
        return worker_lost()
    return error_of(ending, work.seconds)


def unreadable(error: FrameError, limit: int) -> MeshError:
    """Return why what a process wrote is no result: too much of it, or no JSON as strict as the mesh's."""
    if error.size:
        return result_too_large(error.size, limit)
    return result_invalid([Violation("", "json", "the result has no JSON form")])


def tell(log: Log, tool: Tool, work: RunRequest, error: MeshError, detail: str = "") -> None:
    """Write what went wrong to the log of the mesh. As a warning: those are written without what is sensitive."""
    log.warning(
        "tool failed",
        tool=tool.name,
        invocation=work.invocation_id,
        reason=error.reason.name,
        detail=detail[-_COMPLAINT:],
    )
