"""The result of a successful call, and the types of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from toolmesh.executor.v1 import result_envelope_pb2 as pb

from toolmesh_sdk._wire.envelope import (
    ArgumentChange,
    CallWarning,
    Compensation,
    Cost,
    DeclaredEffect,
    Deprecation,
    Effect,
    RenderedResult,
    StoredResult,
    enum_label,
    parse_compensation,
    parse_declared,
    parse_deprecation,
    parse_effect,
    parse_stored_result,
)
from toolmesh_sdk._wire.payload import parse
from toolmesh_sdk._wire.times import to_datetime

__all__ = [
    "ArgumentChange",
    "CallWarning",
    "Compensation",
    "Cost",
    "DeclaredEffect",
    "Deprecation",
    "Effect",
    "RenderedResult",
    "Result",
    "StoredResult",
    "parse_result",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A result that satisfies the tool's output schema, with its provenance.

    `content` is the parsed result and `raw` its exact bytes; both are empty if the result is `stored`. A client's
    `content(result)` returns it in both cases. Durations are seconds. `envelope` is the whole message; the properties
    read its optional parts.
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
    """JSON Pointers of the parts that policy removed or truncated."""
    evidence_refs: tuple[str, ...]
    deprecation: Deprecation | None
    create_time: datetime | None
    envelope: pb.ResultEnvelope = field(repr=False, compare=False)

    @property
    def source(self) -> str:
        """The origin of the result: computed, cache, replay, or stale_cache if the service did not answer."""
        return enum_label(pb.ResultSource, self.envelope.provenance.source, "RESULT_SOURCE_")

    @property
    def stored(self) -> StoredResult | None:
        """The reference to a result that is too large to embed."""
        return parse_stored_result(self.envelope.persisted[0]) if self.envelope.persisted else None

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects of the call, observed or reported; those of the first call, if it is replayed."""
        return tuple(parse_effect(effect) for effect in self.envelope.effects)

    @property
    def declared_effects(self) -> tuple[DeclaredEffect, ...]:
        """The effects that the tool's manifest declares: what a call may change, not what it did."""
        return parse_declared(self.envelope.declared_effects)

    @property
    def compensation(self) -> Compensation | None:
        """The call that undoes this one, if the tool declares one."""
        return parse_compensation(self.envelope.compensation) if self.envelope.HasField("compensation") else None

    @property
    def argument_changes(self) -> tuple[ArgumentChange, ...]:
        """The changes of the arguments before the tool received them, in order."""
        changes = self.envelope.argument_changes
        return tuple(ArgumentChange(each.path, each.source, each.reason) for each in changes)

    @property
    def additional_context(self) -> tuple[str, ...]:
        """Context that hooks add for the model."""
        return tuple(self.envelope.additional_context)

    @property
    def warnings(self) -> tuple[CallWarning, ...]:
        """What the caller should know of the tool, beside its result."""
        return tuple(CallWarning(each.code, each.message, each.resource) for each in self.envelope.warnings)

    @property
    def costs(self) -> tuple[Cost, ...]:
        """The costs of the call."""
        return tuple(Cost(each.category, each.amount_micros, each.currency) for each in self.envelope.execution.costs)

    @property
    def shown(self) -> RenderedResult:
        """The result as text for a model, a person and search."""
        envelope = self.envelope
        return RenderedResult(
            envelope.model_facing_content, envelope.ui_facing_summary, envelope.transcript_search_text
        )


def parse_result(envelope: pb.ResultEnvelope) -> Result:
    """Convert an envelope. Raises RESULT_INVALID if its content is not JSON."""
    execution = envelope.execution
    return Result(
        content=parse(envelope.structured_content),
        raw=envelope.structured_content,
        invocation_id=envelope.invocation_id,
        result_id=envelope.result_id,
        status=enum_label(pb.ResultStatus, envelope.status, "RESULT_STATUS_"),
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
        deprecation=parse_deprecation(envelope.deprecation) if envelope.HasField("deprecation") else None,
        create_time=to_datetime(envelope.create_time),
        envelope=envelope,
    )
