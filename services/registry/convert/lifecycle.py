"""Conversions of the lifecycle service."""

from __future__ import annotations

from typing import Protocol

from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
from toolmesh.registry.v1 import tool_version_pb2

from libs.common.call_context import Call
from services.registry.convert.registry import actor_of, tool_version
from services.registry.convert.shared import datetime_of, state_of, timestamp
from services.registry.domain.lifecycle.deprecate_version import DeprecationNotice
from services.registry.domain.lifecycle.remove_version import WINDOW, Removal
from services.registry.domain.lifecycle.transitions import ChangeRequest, Transition, TransitionPage
from services.registry.domain.model import ToolVersion, VersionHead


class LifecycleRequest(Protocol):
    """The fields that all lifecycle requests have."""

    @property
    def reason(self) -> str: ...
    @property
    def etag(self) -> str: ...
    @property
    def request_id(self) -> str: ...


def change_request_of(request: LifecycleRequest, call: Call) -> ChangeRequest:
    return ChangeRequest(actor_of(call), reason=request.reason, etag=request.etag, request_id=request.request_id)


def deprecation_notice_of(request: pb.DeprecateVersionRequest) -> DeprecationNotice:
    sunset = datetime_of(request.sunset_time, "sunset_time") if request.HasField("sunset_time") else None
    grace = request.grace_period.ToTimedelta() if request.HasField("grace_period") else None
    return DeprecationNotice(sunset, grace, request.successor, request.migration_guide_url)


def version(head: VersionHead) -> tool_version_pb2.ToolVersion:
    """Convert a version without its manifest, which never changes."""
    return tool_version(ToolVersion(head, None))


def removal_response(outcome: Removal) -> pb.RemoveVersionResponse:
    if outcome.removed:
        return pb.RemoveVersionResponse(removed=version(outcome.head))
    window = Duration()
    window.FromTimedelta(WINDOW)
    blocked = pb.RemovalBlocked(version=version(outcome.head), calls=outcome.calls, window=window)
    return pb.RemoveVersionResponse(blocked=blocked)


def transitions_response(page: TransitionPage) -> pb.ListTransitionsResponse:
    return pb.ListTransitionsResponse(
        transitions=[_transition(transition) for transition in page.transitions], next_page_token=page.next_token
    )


def _transition(transition: Transition) -> pb.Transition:
    return pb.Transition(
        version=transition.name,
        sequence=transition.sequence,
        verb=transition.verb,
        from_state=state_of(transition.from_state)
        if transition.from_state
        else tool_version_pb2.LIFECYCLE_STATE_UNSPECIFIED,
        to_state=state_of(transition.to_state),
        actor=transition.actor,
        through=transition.through,
        reason=transition.reason,
        time=timestamp(transition.time),
    )
