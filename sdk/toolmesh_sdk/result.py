"""What a successful call returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from toolmesh.executor.v1 import result_envelope_pb2 as pb

from toolmesh_sdk._wire.envelope import (
    ArgumentChange,
    Compensation,
    Cost,
    Deprecation,
    Effect,
    Shown,
    Stored,
    compensation_of,
    deprecation_of,
    effect_of,
    stored_of,
    time_of,
    word,
)
from toolmesh_sdk._wire.payload import parse


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A result that satisfied the tool's output schema, and where it comes from.

    `content` is the parsed result and `raw` its exact bytes; both are empty when the result is `stored` and only referenced:
    `content(result)` of a client has it in either case. Durations are seconds. `envelope` is the mesh's own message with
    everything else; the properties read the parts of it that most results do not have.
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

    @property
    def source(self) -> str:
        """How the result was obtained: computed, cache or replay."""
        return word(pb.ResultSource, self.envelope.provenance.source, "RESULT_SOURCE_")

    @property
    def stored(self) -> Stored | None:
        """Where the result is, when it was too large to be embedded."""
        return stored_of(self.envelope.persisted[0]) if self.envelope.persisted else None

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What the call was seen to change in the world."""
        return tuple(effect_of(effect) for effect in self.envelope.effects)

    @property
    def compensation(self) -> Compensation | None:
        """The call that would undo this one, where the tool names one."""
        return compensation_of(self.envelope.compensation) if self.envelope.HasField("compensation") else None

    @property
    def argument_changes(self) -> tuple[ArgumentChange, ...]:
        """Every change that was made to the arguments before the tool received them, in order."""
        changes = self.envelope.argument_changes
        return tuple(ArgumentChange(each.path, each.source, each.reason) for each in changes)

    @property
    def additional_context(self) -> tuple[str, ...]:
        """What hooks had to add, for the model to read."""
        return tuple(self.envelope.additional_context)

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What the call cost, part by part."""
        return tuple(Cost(each.category, each.amount_micros, each.currency) for each in self.envelope.execution.costs)

    @property
    def shown(self) -> Shown:
        """The result as text for a model, for a person, and for search."""
        said = self.envelope
        return Shown(said.model_facing_content, said.ui_facing_summary, said.transcript_search_text)


def result_of(envelope: pb.ResultEnvelope) -> Result:
    """Read an envelope. Raises RESULT_INVALID where its content is not JSON."""
    execution = envelope.execution
    return Result(
        content=parse(envelope.structured_content),
        raw=envelope.structured_content,
        invocation_id=envelope.invocation_id,
        result_id=envelope.result_id,
        status=word(pb.ResultStatus, envelope.status, "RESULT_STATUS_"),
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
        deprecation=deprecation_of(envelope.deprecation) if envelope.HasField("deprecation") else None,
        create_time=time_of(envelope.create_time),
        envelope=envelope,
    )
