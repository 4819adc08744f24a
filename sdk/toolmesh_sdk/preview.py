"""What a call would do, as the mesh foretells it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from toolmesh.executor.v1 import executor_service_pb2 as pb

from toolmesh_sdk._wire.envelope import Effect, effect_of, time_of
from toolmesh_sdk._wire.payload import parse


@dataclass(frozen=True, slots=True)
class Precondition:
    """One thing that must hold for a call to succeed, and whether it does now."""

    description: str
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a call would do; nothing of it was done.

    `token` shows the mesh, until it `expires`, that this very call was previewed: pass it as `preview_token` with the same tool and
    arguments. `predicted_result` is None where the tool cannot tell, and where it is left out:
    `result_left_out` then says why, `needs_approval` or `too_large`.
    """

    changes: tuple[Effect, ...]
    preconditions: tuple[Precondition, ...]
    impact: str
    predicted_result: Any
    approval_required: bool
    token: str = field(repr=False)
    expires: datetime | None
    tool_version: str
    invocation_id: str
    trace_id: str
    result_left_out: str = ""


def preview_of(response: pb.PreviewInvocationResponse) -> Preview:
    """Read an answer. Raises RESULT_INVALID where the predicted result is not JSON."""
    return Preview(
        changes=tuple(effect_of(change) for change in response.changes),
        preconditions=tuple(Precondition(each.description, each.holds) for each in response.preconditions),
        impact=response.impact,
        predicted_result=parse(response.predicted_result),
        approval_required=response.approval_required,
        token=response.preview_token,
        expires=time_of(response.expire_time),
        tool_version=response.tool_version,
        invocation_id=response.invocation_id,
        trace_id=response.trace_id,
        result_left_out=response.result_left_out,
    )
