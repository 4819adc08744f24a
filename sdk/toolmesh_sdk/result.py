"""What a successful call returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1 import result_envelope_pb2 as pb

from toolmesh_sdk.payload import parse


@dataclass(frozen=True, slots=True)
class Deprecation:
    """The version that answered is about to end."""

    sunset_time: datetime | None
    successor: str
    migration_guide_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A result that satisfied the tool's output schema, and where it comes from.

    `content` is the parsed result and `raw` its exact bytes; both are empty when the result is stored and only referenced,
    see `envelope.persisted`. Durations are seconds. `envelope` is the mesh's own message with everything else.
    """

    content: Any
    raw: bytes = field(repr=False)
    invocation_id: str
    result_id: str
    status: str
    tool_version: str
    digest: str
    replayed: bool
    trace_id: str
    duration: float
    phases: Mapping[str, float]
    attempts: int
    adjusted_arguments: tuple[str, ...]
    adjusted_result: tuple[str, ...]
    """What policy had removed from the result or cut, as JSON Pointers."""
    evidence_refs: tuple[str, ...]
    deprecation: Deprecation | None
    create_time: datetime | None
    envelope: pb.ResultEnvelope = field(repr=False, compare=False)


def result_of(envelope: pb.ResultEnvelope) -> Result:
    """Read an envelope. Raises RESULT_INVALID where its content is not JSON."""
    execution = envelope.execution
    return Result(
        content=parse(envelope.structured_content),
        raw=envelope.structured_content,
        invocation_id=envelope.invocation_id,
        result_id=envelope.result_id,
        status=pb.ResultStatus.Name(envelope.status).removeprefix("RESULT_STATUS_").lower(),
        tool_version=envelope.provenance.tool_version,
        digest=envelope.provenance.tool_digest,
        replayed=envelope.replayed,
        trace_id=envelope.trace_id,
        duration=execution.total.ToMicroseconds() / 1e6,
        phases={phase.phase: phase.duration.ToMicroseconds() / 1e6 for phase in execution.phases},
        attempts=execution.attempts,
        adjusted_arguments=tuple(envelope.adjusted_arguments),
        adjusted_result=tuple(envelope.adjusted_result),
        evidence_refs=tuple(envelope.evidence_refs),
        deprecation=_deprecation(envelope.deprecation) if envelope.HasField("deprecation") else None,
        create_time=time_of(envelope.create_time),
        envelope=envelope,
    )


def time_of(stamp: Timestamp) -> datetime | None:
    """Return the moment in UTC; None when it was never set."""
    return stamp.ToDatetime(UTC) if stamp.seconds or stamp.nanos else None


def _deprecation(notice: pb.DeprecationNotice) -> Deprecation:
    return Deprecation(time_of(notice.sunset_time), notice.successor, notice.migration_guide_url)
