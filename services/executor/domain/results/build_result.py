"""Builds the result of a call from its verified content."""

from __future__ import annotations

from libs.common.ids import new_id
from libs.common.json.jsonio import dump
from libs.common.runtime.clock import Clock
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Result, Source
from services.executor.domain.results.check import VerifiedResult
from services.executor.domain.results.size_limits import (
    truncate_changes,
    truncate_effects,
    truncate_paths,
    truncate_texts,
)
from services.executor.domain.results.warnings import warnings_of
from services.executor.domain.tool import Tool


def build_result(invocation: Invocation, tool: Tool, verified: VerifiedResult, clock: Clock) -> Result:
    """Return the result of a call as far as it has come. Its id stays the same."""
    invocation.result_id = invocation.result_id or new_id()
    return Result(
        result_id=invocation.result_id,
        invocation_id=invocation.invocation_id,
        content=verified.content,
        tool_version=tool.name,
        tool_digest=tool.digest,
        source=_source_of(invocation),
        created=clock.now(),
        total=invocation.elapsed(),
        phases=tuple(invocation.phases.durations),
        attempts=invocation.attempts,
        sandbox=invocation.sandbox,
        trace_id=invocation.request.trace_id,
        changes=truncate_changes(invocation.changes) if invocation.changes else (),
        changed=truncate_paths(invocation.changed) if invocation.changed else (),
        deprecation=tool.deprecation,
        evidence=tuple(invocation.evidence),
        policies=invocation.decision.policies if invocation.decision else (),
        context=truncate_texts(invocation.context) if invocation.context else (),
        effects=truncate_effects(invocation.effects) if invocation.effects else (),
        effect_count=len(invocation.effects),
        declared=tool.effects,
        costs=invocation.costs,
        undone_by=tool.compensation,
        undo=b"" if invocation.undo is None else dump(invocation.undo),
        stored=verified.stored,
        rendered=verified.rendered,
        retrieved=invocation.retrieved,
        warnings=warnings_of(tool),
    )


def _source_of(invocation: Invocation) -> Source:
    if invocation.retrieved is None:
        return Source.COMPUTED
    return Source.STALE_CACHE if invocation.stale else Source.CACHE
