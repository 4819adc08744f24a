"""Replays the result of an earlier call with the same idempotency key."""

from __future__ import annotations

from msgspec.structs import replace

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse
from libs.common.redaction.scanner import Scanner
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.audit_records import outcome_record
from services.executor.domain.deadlines import blame_deadline, time_left
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import ClaimOutcome, PayloadDigest, Result, Source, StoredResult
from services.executor.domain.payload_summary import summarize_payload
from services.executor.domain.ports import AuditTrail
from services.executor.domain.results.check import describe_stored, encode_result
from services.executor.domain.results.obligations import affect_results, apply_obligations
from services.executor.domain.results.size_limits import truncate_paths
from services.executor.domain.results.store import LargeResults
from services.executor.domain.states import State
from services.executor.domain.tool import Tool


class Replay:
    """Returns the outcome of an earlier call. The replay is recorded like any other result."""

    def __init__(
        self,
        audit: AuditTrail,
        large_results: LargeResults,
        scanners: TenantScanners,
        clock: Clock,
        audit_wait: float,
    ) -> None:
        self._audit, self._large_results, self._scanners = audit, large_results, scanners
        self._clock, self._audit_wait = clock, audit_wait

    async def replay(self, invocation: Invocation, tool: Tool, settled: ClaimOutcome) -> Result:
        """Return the result of the first call with the key, or raise its error."""
        invocation.replayed = True
        first = settled.outcome
        if isinstance(first, MeshError):
            first.metadata.setdefault("first_invocation", settled.invocation_id)
            raise first
        invocation.phases.begin("return")
        scanner = invocation.scanner_of(self._scanners)
        first, payload = await adapt_result(first, invocation, tool, scanner, self._large_results)
        invocation.enter(State.SUCCEEDED)
        invocation.closed = True
        record = outcome_record(invocation, result=payload)
        invocation.evidence.append(f"records/{record.record_id}")
        until = invocation.deadline.answer_by
        try:
            await self._audit.append(record, within=time_left(until, self._clock, self._audit_wait))
        except MeshError as unrecorded:
            raise blame_deadline(unrecorded, until, self._clock) from None
        invocation.phases.end()
        evidence = (*first.evidence, *invocation.evidence)
        trace_id = invocation.request.trace_id
        return replace(first, source=Source.REPLAY, replayed=True, evidence=evidence, trace_id=trace_id)


async def adapt_result(
    first: Result, invocation: Invocation, tool: Tool, scanner: Scanner, large_results: LargeResults
) -> tuple[Result, PayloadDigest]:
    """Return the first call's result under the obligations of this call, and how the record shows it.

    Policy may have changed since. Without obligations on results the first one is returned as it is, with the same
    reference where it is stored. A stored result that has to change is read, changed and stored again; if it is gone
    meanwhile, SANITIZATION_FAILED is raised.
    """
    obligations = invocation.decision.obligations if invocation.decision else ()
    if not affect_results(obligations):
        return first, _payload_of(first, tool, scanner)
    content = first.content if first.stored is None else await large_results.read(first.stored)
    if content is None:
        raise errors.sanitization_failed()
    bound = apply_obligations(parse(content, max_bytes=len(content)), obligations, scanner)
    if not bound.changed:
        return first, _payload_of(first, tool, scanner)
    checked = encode_result(tool, bound.value, scanner)
    stored: StoredResult | None = None
    if checked.large:
        caller, digest = invocation.request.caller, checked.payload.digest
        stored = await large_results.save(tool, caller, checked.content, digest, keyed=True)
    changed = truncate_paths(tuple(dict.fromkeys((*first.changed, *bound.changed))))
    content = b"" if checked.large else checked.content
    result = replace(first, content=content, stored=stored, changed=changed, rendered=checked.rendered)
    return result, checked.payload


def _payload_of(result: Result, tool: Tool, scanner: Scanner) -> PayloadDigest:
    if result.stored is not None:
        return describe_stored(result.stored.digest, result.stored.size, tool)
    return summarize_payload(parse(result.content), tool.output, tool, scanner)
