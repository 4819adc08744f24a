"""ExplainDecision: explains a recorded decision policy by policy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from libs.common.auth.identity import Identity
from services.authz.domain.model import Allow, ContextField, Decision, DecisionRequest, Deny, LabelSource
from services.authz.domain.policies.errors import decision_not_found, set_not_found
from services.authz.domain.policies.model import Explanation, PolicyFinding, RecordedDecision
from services.authz.domain.policies.ports import DecisionRecords, LabelHistory, PolicyLibrary

# The scope for decisions about other subjects.
READ_SCOPE = "policies:read"


@dataclass(frozen=True)
class ExplainDecision:
    """Evaluates each policy of the deciding set again for the recorded request."""

    records: DecisionRecords
    library: PolicyLibrary
    labels: LabelHistory

    async def execute(self, decision_id: str, asker: Identity | None) -> Explanation:
        """Return the explanation; `asker` is None for a peer that may read everything. Raises NOT_FOUND."""
        recorded = await self.records.find(decision_id)
        if recorded is None or not _may_read(asker, recorded.request):
            raise decision_not_found(f"decisions/{decision_id}")
        findings: list[PolicyFinding] = []
        if recorded.context_fields is not None:
            engine = await self.library.engine_for(recorded.decision.policy_set_version)
            if engine is None:
                raise set_not_found(recorded.decision.policy_set_version)
            # In a thread: evaluating every policy of a large set takes long.
            findings = await asyncio.to_thread(engine.findings, recorded.request)
        sources = await self._sources(recorded)
        return Explanation(recorded, tuple(findings), _summary(recorded, sources), sources)

    async def _sources(self, recorded: RecordedDecision) -> tuple[LabelSource, ...]:
        """Return what brought the labels that policy read, the oldest first."""
        request, scopes = recorded.request, recorded.label_scopes
        if not request.labels and not request.token_labels:
            return ()
        found = await self.labels.sources(scopes)
        return _latest_until(request, scopes[0], {one for scope in scopes for one in found.get(scope, ())})


def _latest_until(request: DecisionRequest, session: str, sources: Iterable[LabelSource]) -> tuple[LabelSource, ...]:
    """Return for each label that the call met the source that it had by then. The clock of the database may be ahead of
    that of the decision, so the first one is taken where all seem to be later."""
    held, elsewhere = request.labels or frozenset(), request.token_labels
    chosen: dict[tuple[str, str], LabelSource] = {}
    for one in sorted(sources, key=lambda source: source.added_at):
        key = one.place, one.label
        if one.label in (held if one.place == session else elsewhere) and (
            key not in chosen or one.added_at <= request.time
        ):
            chosen[key] = one
    return tuple(chosen.values())


def _may_read(asker: Identity | None, request: DecisionRequest) -> bool:
    """Return whether an asker may read a decision: about itself in its own tenant, or with the scope about any subject
    of its tenant; with the scope and without a tenant, about all subjects."""
    if asker is None:
        return True
    same_tenant = asker.tenant == request.caller.tenant
    if READ_SCOPE in asker.scopes:
        return same_tenant or not asker.tenant
    return same_tenant and asker.subject == request.caller.subject


def _summary(recorded: RecordedDecision, sources: tuple[LabelSource, ...]) -> str:
    decision, request = recorded.decision, recorded.request
    caller, tool = request.caller, request.call.tool.qualified
    who = f"{caller.agent} for {caller.subject}" if caller.agent and caller.agent != caller.subject else caller.subject
    lines = [f"{who} {_outcome_text(decision)} {tool} {request.call.version} in {request.environment}."]
    lines += decision.verdict.reasons
    if decision.verdict.blocked_path:
        lines.append(f"The refused argument is {decision.verdict.blocked_path}.")
    if decision.verdict.obligations:
        kinds = ", ".join(f"{one.kind} {' '.join(one.values)}".strip() for one in decision.verdict.obligations)
        lines.append(f"Obligations: {kinds}.")
    if decision.added_labels:
        lines.append(f"Labels added to the session: {', '.join(decision.added_labels)}.")
    if decision.cleared_labels:
        lines.append(f"Labels removed from the session: {', '.join(decision.cleared_labels)}.")
    lines += [_source_text(source, recorded.label_scopes) for source in sources]
    if decision.by_executor:
        lines.append(_executor_text(decision))
    elif recorded.context_fields is None:
        lines.append("Policy was not evaluated: the token alone decided.")
    elif ContextField.ARGUMENTS in recorded.context_fields and not request.call.arguments:
        lines.append("The arguments were not stored, so policies that read them are evaluated without arguments.")
    return "\n".join(lines)


def _source_text(source: LabelSource, scopes: tuple[str, ...]) -> str:
    owner = "The session" if source.place == scopes[0] else "Another session of the token"
    brought = f", brought by {source.tool_version}" if source.tool_version else ""
    call = f", {source.decision}" if source.decision else ""
    call += f", invocation {source.invocation_id}" if source.invocation_id else ""
    since = source.added_at.isoformat(timespec="seconds")
    return f"{owner} has had the label {source.label} since {since}{brought}{call}."


def _executor_text(decision: Decision) -> str:
    if decision.follows:
        return f"The executor decided this after policy's {decision.follows}."
    return "The executor decided this before policy was asked."


def _outcome_text(decision: Decision) -> str:
    outcome = decision.verdict.outcome
    if isinstance(outcome, Allow):
        return "was allowed to call"
    return "was refused" if isinstance(outcome, Deny) else "needs approval for"
