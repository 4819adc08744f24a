"""AskPolicySet: asks a policy set about calls that are made up, before the set decides anything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from libs.common.json.canonical import digest
from libs.common.json.jsonio import parse_object
from libs.common.runtime.clock import Clock
from services.authz.domain.decisions.check import identity_of, verdict_of
from services.authz.domain.model import CallFacts, DecisionRequest, Verdict
from services.authz.domain.policies.changed_documents import changed_documents
from services.authz.domain.policies.errors import set_not_found
from services.authz.domain.policies.model import PolicyQuestion, PolicySetChange
from services.authz.domain.policies.ports import ExplainingEngine, PolicyLibrary, PolicySets


@dataclass(frozen=True)
class AskPolicySet:
    """Evaluates a stored set, or one that would come of a change, for questions. Records and changes nothing."""

    sets: PolicySets
    library: PolicyLibrary
    clock: Clock
    environment: str

    async def execute(
        self, change: PolicySetChange, questions: Sequence[PolicyQuestion]
    ) -> tuple[str, list[tuple[PolicyQuestion, Verdict]]]:
        """Return the version of the set and a verdict for each question, in their order. Raises NOT_FOUND for a missing
        set, and POLICY_INVALID with all problems of the documents."""
        engine = await self._engine(change)
        requests = [self._request(question) for question in questions]
        # In a thread: arguments of hundred questions take long.
        verdicts = await asyncio.to_thread(lambda: [_verdict(engine, request) for request in requests])
        return engine.version, list(zip(questions, verdicts, strict=True))

    async def _engine(self, change: PolicySetChange) -> ExplainingEngine:
        if change.documents or change.removed:
            return await self.library.trial(await changed_documents(change, self.sets))
        stored = await self.sets.active() if change.base is None else await self.sets.find(change.base)
        engine = await self.library.engine_for(stored.version) if stored is not None else None
        if engine is None:
            raise set_not_found(f"policySets/{change.base or 'active'}")
        return engine

    def _request(self, question: PolicyQuestion) -> DecisionRequest:
        caller = identity_of(question.subject, expires_at=0)
        if question.session_bound:
            caller = replace(caller, session_id=question.call.session_id)
        return DecisionRequest(
            caller=caller,
            call=_with_digest(question.call),
            environment=question.environment or self.environment,
            time=question.time or self.clock.now(),
            labels=question.labels,
            granted_by_name=not question.granted_by_wildcard,
            token_labels=question.labels | question.token_labels,
        )


def _with_digest(call: CallFacts) -> CallFacts:
    """Return the call with the digest of its arguments, as the executor would send it. Raises INVALID_JSON."""
    if call.arguments_digest or not call.arguments:
        return call
    return msgspec.structs.replace(call, arguments_digest=digest(parse_object(call.arguments)))


def _verdict(engine: ExplainingEngine, request: DecisionRequest) -> Verdict:
    return verdict_of(engine.evaluate(request), request)
