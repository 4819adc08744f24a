"""The preview of a call."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from toolmesh.executor.v1 import executor_service_pb2 as pb

from toolmesh_sdk._wire.envelope import DeclaredEffect, Effect, parse_declared, parse_effect
from toolmesh_sdk._wire.payload import parse
from toolmesh_sdk._wire.times import to_datetime


@dataclass(frozen=True, slots=True)
class Precondition:
    """A condition that a call needs to succeed, and whether it holds now."""

    description: str
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The predicted changes and result of a call.

    `token` proves until `expires` that this call was previewed: pass it as `preview_token` with the same tool and
    arguments. `predicted_result` is None if the tool cannot predict it, or if it is left out; then `result_left_out` is
    `needs_approval` or `too_large`.
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
    declared_effects: tuple[DeclaredEffect, ...] = ()
    """The effects that the tool's manifest declares; `changes` are those that are foreseen for this call."""


def parse_preview(response: pb.PreviewInvocationResponse) -> Preview:
    """Convert a response. Raises RESULT_INVALID if the predicted result is not JSON."""
    return Preview(
        changes=tuple(parse_effect(change) for change in response.changes),
        preconditions=tuple(Precondition(each.description, each.holds) for each in response.preconditions),
        impact=response.impact,
        predicted_result=parse(response.predicted_result),
        approval_required=response.approval_required,
        token=response.preview_token,
        expires=to_datetime(response.expire_time),
        tool_version=response.tool_version,
        invocation_id=response.invocation_id,
        trace_id=response.trace_id,
        result_left_out=response.result_left_out,
        declared_effects=parse_declared(response.declared_effects),
    )
