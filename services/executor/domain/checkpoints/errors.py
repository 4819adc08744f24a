"""The errors of checkpoints."""

from __future__ import annotations

from libs.common.errors import MeshError, Reason


def store_unavailable() -> MeshError:
    """A store of checkpoints does not answer."""
    return MeshError(Reason.STATE_SERVER_UNAVAILABLE, retry_after=1.0)


def not_written(why: str) -> MeshError:
    """A checkpoint could not be written."""
    return MeshError(Reason.CHECKPOINT_FAILED, message=why, metadata={"why": why})


def state_too_large(size: int, limit: int) -> MeshError:
    """The state is larger than the limit."""
    return MeshError(Reason.STATE_TOO_LARGE, metadata={"state_bytes": str(size), "limit_bytes": str(limit)})


def checkpoint_not_found(name: str) -> MeshError:
    """The invocation has no such checkpoint."""
    return MeshError(Reason.CHECKPOINT_NOT_FOUND, metadata={"checkpoint": name})


def checkpoint_corrupted(name: str) -> MeshError:
    """The checkpoint is damaged, or of another version of the tool."""
    return MeshError(Reason.CHECKPOINT_CORRUPTED, metadata={"checkpoint": name})


def not_resumable(why: str) -> MeshError:
    """The invocation cannot be resumed from a checkpoint."""
    return MeshError(Reason.RESUME_FAILED, message=why, metadata={"why": why})
