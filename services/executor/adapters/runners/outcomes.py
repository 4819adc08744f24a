"""How a confined run ended, as the mesh says it."""

from __future__ import annotations

from libs.common.errors import MeshError, Violation
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.worker.frames import FrameError
from services.executor.adapters.sandbox.exit_report import error_for_exit
from services.executor.adapters.sandbox.port import ExitKind, ExitReport
from services.executor.domain.errors import result_invalid, result_too_large, worker_lost
from services.executor.domain.model import Work
from services.executor.domain.tool import Tool

_COMPLAINT = 2000


def lost(ending: ExitReport, work: Work) -> MeshError:
    """Return why a worker that fell silent did. One that simply left, or only hung up, crashed as far as its caller knows."""
    if ending.kind in (ExitKind.EXITED, ExitKind.KILLED):
        return worker_lost()
    return error_for_exit(ending, work.seconds)


def unreadable(error: FrameError, limit: int) -> MeshError:
    """Return why what a process wrote is no result: too much of it, or no JSON as strict as the mesh's."""
    if error.size:
        return result_too_large(error.size, limit)
    return result_invalid([Violation("", "json", "the result has no JSON form")])


def tell(log: Log, tool: Tool, work: Work, error: MeshError, detail: str = "") -> None:
    """Write what went wrong to the log of the mesh. As a warning: those are written without what is sensitive."""
    log.warning(
        "tool failed",
        tool=tool.name,
        invocation=work.invocation_id,
        reason=error.reason.name,
        detail=detail[-_COMPLAINT:],
    )
