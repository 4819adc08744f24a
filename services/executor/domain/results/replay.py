"""Replaying: the result of an earlier call with the same key, as the caller of this one may see it."""

from __future__ import annotations

from dataclasses import replace

from libs.common.json.jsonio import parse
from libs.common.redaction.scanner import Scanner
from services.executor.domain import errors
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Payload, Result, Stored
from services.executor.domain.payload_summary import describe
from services.executor.domain.results.check import as_seen, measured_as
from services.executor.domain.results.obligations import bind_results, fulfil
from services.executor.domain.results.size_limits import few_places
from services.executor.domain.results.store import Storing
from services.executor.domain.tool import Tool


async def replay(
    first: Result, invocation: Invocation, tool: Tool, scanner: Scanner, storing: Storing
) -> tuple[Result, Payload]:
    """Return the first call's result under what binds this call, and how the evidence shows it.

    Policy may have changed since. What binds no result leaves the first one as it is, with the same reference where it is stored. A stored
    result that now has to be changed is read, changed and stored anew; where it is gone meanwhile, SANITIZATION_FAILED is raised.
    """
    obligations = invocation.decision.obligations if invocation.decision else ()
    if not bind_results(obligations):
        return first, _as_recorded(first, tool, scanner)
    content = first.content if first.stored is None else await storing.read(first.stored)
    if content is None:
        raise errors.sanitization_failed()
    fulfilled = fulfil(parse(content, max_bytes=len(content)), obligations, scanner)
    if not fulfilled.changed:
        return first, _as_recorded(first, tool, scanner)
    seen = as_seen(tool, fulfilled.value, scanner)
    stored: Stored | None = None
    if seen.large:
        stored = await storing.keep(tool, invocation.request.caller, seen.content, keyed=True)
    changed = few_places(tuple(dict.fromkeys((*first.changed, *fulfilled.changed))))
    answer = replace(
        first, content=b"" if seen.large else seen.content, stored=stored, changed=changed, shown=seen.presented
    )
    return answer, seen.shown


def _as_recorded(result: Result, tool: Tool, scanner: Scanner) -> Payload:
    if result.stored is not None:
        return measured_as(result.stored.digest, result.stored.size, tool)
    return describe(parse(result.content), tool.output, tool, scanner)
