"""Constructs the errors of a run: how a sandbox, a tool's process or its volumes fail."""

from __future__ import annotations

from libs.common.errors import MeshError, Reason


def sandbox_failed(why: str) -> MeshError:
    """The sandbox could not be set up, so nothing ran."""
    return MeshError(Reason.SANDBOX_UNAVAILABLE, metadata={"why": why})


def sandbox_not_ready() -> MeshError:
    """The sandbox did not start in time. A worker continues to start, so a retry may find it ready."""
    return MeshError(Reason.SANDBOX_NOT_READY, retry_after=1.0)


def start_unconfirmed() -> MeshError:
    """The sandbox of a program did not confirm its start in time. The program may have run."""
    message = "the sandbox did not confirm its start in time"
    return MeshError(Reason.SERVICE_UNAVAILABLE, message=message, metadata={"outcome": "unknown"}, retry_after=1.0)


def tool_raised(kind: str) -> MeshError:
    """The tool raised an exception. The caller gets its type; its text goes to the log only."""
    message = "The tool's own code failed; the executor's log says how."
    return MeshError(Reason.EXECUTION_FAILED, message=message, metadata={"exception": kind} if kind else {})


def exited(code: int) -> MeshError:
    """The tool's process exited with a failure code."""
    message = "The tool's program ended in failure; the executor's log has what it wrote."
    return MeshError(Reason.EXECUTION_FAILED, message=message, metadata={"exit_code": str(code)})


def crashed(cause: str) -> MeshError:
    return MeshError(Reason.TOOL_CRASHED, metadata={"cause": cause})


def worker_lost() -> MeshError:
    """The worker process ended without an answer, or sent an invalid one."""
    return MeshError(Reason.TOOL_CRASHED)


def out_of_memory() -> MeshError:
    return MeshError(Reason.TOOL_OUT_OF_MEMORY)


def limit_reached(limit: str) -> MeshError:
    """The run exceeded a limit: cpu, processes or file_size."""
    return MeshError(Reason.RESOURCE_LIMIT_EXCEEDED, metadata={"limit": limit})


def stream_discarded(parts: int) -> MeshError:
    """The tool failed after some parts of its stream. None of them is a result."""
    return MeshError(Reason.STREAM_DISCARDED, metadata={"parts": str(parts)})


def preview_unknown() -> MeshError:
    """The tool uses the network and has no preview function, so it cannot be previewed safely."""
    return MeshError(Reason.EXECUTION_FAILED, message="the tool does not support previews")


def partly_done(message: str) -> MeshError:
    """The tool reports that it did only a part of the request."""
    return MeshError(Reason.PARTIAL_FAILURE, message=message)


def partly_kept(kept: int, of: int, cause: str) -> MeshError:
    """Only some changes of a run could be committed. `cause` is changed (concurrently) or failed."""
    return MeshError(Reason.PARTIAL_FAILURE, metadata={"kept": str(kept), "changes": str(of), "cause": cause})


def volume_too_large(volume: str, limit: int) -> MeshError:
    """The files of a volume exceed the scratch space of the run."""
    metadata = {"limit": "scratch", "volume": volume, "limit_bytes": str(limit)}
    return MeshError(Reason.RESOURCE_LIMIT_EXCEEDED, metadata=metadata)


def not_carried_over(volume: str) -> MeshError:
    """A link, a device, a file of another user or the like is in a volume after the run. The run is rolled back."""
    message = "the tool left something in a volume that is neither a file nor a folder of its own"
    return MeshError(Reason.EXECUTION_FAILED, message=message, metadata={"volume": volume})
