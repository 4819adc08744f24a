"""Policy answered by Cedar. Cedar knows two answers and the mesh three, so every call is put to it as two questions:
may it run, and may it run without a person? Both are evaluated in one pass over the same entities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import cedarpy
import orjson

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from services.authz.adapters.cedar_facts import (
    TooManyArgumentsError,
    principal_of,
    resource_of,
    steady_context,
    whole_context,
)
from services.authz.adapters.cedar_index import Part, keys_of, part_of
from services.authz.adapters.cedar_notes import DEFAULT_APPROVERS, INVOKE, WITHOUT_APPROVAL, PolicyNotes
from services.authz.adapters.cedar_policies import PolicySet
from services.authz.domain.errors import no_decision
from services.authz.domain.limits import Limits
from services.authz.domain.model import Allow, Deny, Fact, NeedsApproval, Obligation, Question, Verdict
from services.authz.domain.policies.model import Finding

_FAILED = "A policy could not be evaluated, so the call is denied."


@dataclass(slots=True)
class _Answer:
    """What Cedar says to one of the two questions, gathered from the parts of a set."""

    forbids: set[str] = field(default_factory=set)
    permits: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)

    @property
    def allowed(self) -> bool:
        return bool(self.permits) and not self.forbids

    def add(self, result: cedarpy.AuthzResult, names: Mapping[str, str]) -> None:
        decision, diagnostics = result.decision, result.diagnostics
        if decision is cedarpy.Decision.NoDecision:
            raise _UnansweredError(diagnostics.errors)
        found = self.permits if decision is cedarpy.Decision.Allow else self.forbids
        found.update(names[reason] for reason in diagnostics.reasons)
        self.errors.extend(diagnostics.errors)


class _UnansweredError(Exception):
    """Cedar gave no decision."""


class _Case:
    """One question in Cedar's terms; each part of it is made when it is first needed."""

    def __init__(self, policies: PolicySet, question: Question) -> None:
        self._set = policies
        self._principal, self._resource = principal_of(question.caller), resource_of(question.call)
        self.keys = keys_of(self._principal, self._resource)
        self._context = steady_context(question)
        self._entities: cedarpy.Entities | None = None

    @property
    def entities(self) -> cedarpy.Entities:
        if self._entities is None:
            text = orjson.dumps([self._principal, self._resource]).decode()
            self._entities = cedarpy.Entities.from_json_str(text, self._set.schema)
        return self._entities

    def ask(self, part: Part, into: dict[str, _Answer]) -> None:
        """Put both questions to policies that read nothing of the call itself."""
        # Without the schema: it would ask for facts that these policies do not read. The entities were held against it.
        results = cedarpy.is_authorized_batch(self._requests(part, self._context), part.policies, self.entities)
        self._take(part, results, into)

    def ask_about_the_call(
        self, question: Question, parts: Iterable[Part], reads: frozenset[Fact], into: dict[str, _Answer]
    ) -> None:
        """Put both questions to policies that may read everything."""
        context, facts = whole_context(question, reads)
        entities = orjson.dumps([self._principal, self._resource, *facts]).decode()
        handle = cedarpy.Entities.from_json_str(entities, self._set.schema)
        for part in parts:
            requests = self._requests(part, context)
            results = cedarpy.is_authorized_batch(requests, part.policies, handle, self._set.schema)
            self._take(part, results, into)

    def _requests(self, part: Part, context: str) -> list[dict[str, Any]]:
        # Uids as objects: cheaper than Cedar's own notation, and no id can be mistaken for syntax.
        common = {"principal": self._principal["uid"], "resource": self._resource["uid"], "context": context}
        return [{**common, "action": {"type": "Action", "id": action}} for action in part.actions]

    @staticmethod
    def _take(part: Part, results: list[cedarpy.AuthzResult], into: dict[str, _Answer]) -> None:
        for action, result in zip(part.actions, results, strict=True):
            into[action].add(result, part.names)


@dataclass(frozen=True, slots=True)
class _Considered:
    """Keeps the promise of the port: the case, and the parts of the set that the call's own facts decide about."""

    engine: CedarEngine
    question: Question
    case: _Case
    touched: list[Part]
    reads: frozenset[Fact]

    def verdict(self, labels: frozenset[str] | None) -> Verdict:
        question = self.question if labels is self.question.labels else replace(self.question, labels=labels)
        return self.engine.concluded(self, question)


class CedarEngine:
    """A PolicyEngine over a loaded policy set, which it never reads again."""

    def __init__(self, policy_set: PolicySet, log: Log) -> None:
        self._set = policy_set
        self._log = log
        self._order = {name: index for index, name in enumerate(policy_set.policies)}

    @property
    def version(self) -> str:
        return self._set.version

    @property
    def limits(self) -> Limits:
        return self._set.limits

    def reads(self, question: Question) -> frozenset[Fact]:
        """Return what the policies that could match read of this one call."""
        return self.consider(question).reads

    def judge(self, question: Question) -> Verdict:
        """Return allow only if both questions are answered with Allow and no policy failed."""
        return self.consider(question).verdict(question.labels)

    def consider(self, question: Question) -> _Considered:
        """Put the question to the policies that are asked whatever the facts of the call are."""
        with _Broken(self._log):
            case = _Case(self._set, question)
            touched = self._touched(case)
            return _Considered(self, question, case, touched, self._facts(touched))

    def concluded(self, considered: _Considered, question: Question) -> Verdict:
        """Put the question to all policies that could match, and say what comes of it."""
        answers, case, reads = _answers(), considered.case, considered.reads
        with _Broken(self._log):
            for part in self._set.steady.relevant(case.keys):
                case.ask(part, answers)
            if considered.touched:
                parts = [self._set.narrow[id(part)] for part in considered.touched]
                try:
                    case.ask_about_the_call(question, parts, reads, answers)
                except TooManyArgumentsError:
                    return _unreadable()
        may_run, unattended = answers[INVOKE], answers[WITHOUT_APPROVAL]
        if errors := [*may_run.errors, *unattended.errors]:
            # Cedar skips a policy that fails, so that a failing forbid would forbid nothing.
            self._log.error("policy failed", errors=errors, tool=question.call.tool.qualified)
            return Verdict(Deny(Reason.POLICY_ENGINE_ERROR), (_FAILED,), holds_for_any_arguments=False)
        return self._verdict(may_run, unattended, holds=not reads)

    def findings(self, question: Question) -> list[Finding]:
        """Ask each policy by itself, in the order of the documents. Those that cannot be about this caller or tool, and
        those about the other half of the question, are among them as not matched."""
        with _Broken(self._log):
            case = _Case(self._set, question)
            return [self._finding(case, question, name) for name in self._set.policies]

    def _finding(self, case: _Case, question: Question, name: str) -> Finding:
        policy, answers = self._set.policies[name], _answers()
        part = part_of({name: policy.parsed}, {name: policy.text})
        if policy.reads:
            case.ask_about_the_call(question, [part], policy.reads, answers)
        else:
            case.ask(part, answers)
        notes = policy.notes
        return Finding(
            policy=notes.id,
            effect=notes.effect,
            matched=any(name in answer.permits | answer.forbids for answer in answers.values()),
            failed=any(answer.errors for answer in answers.values()),
            reason=notes.reason,
            document=policy.document,
            line=policy.line,
        )

    def _touched(self, case: _Case) -> list[Part]:
        """The parts with policies that could match or fail, if the facts of the call were the right ones."""
        found = []
        for part in self._set.widened.relevant(case.keys):
            answers = _answers()
            case.ask(part, answers)
            if any(answer.permits or answer.errors for answer in answers.values()):
                found.append(part)
        return found

    def _facts(self, parts: Iterable[Part]) -> frozenset[Fact]:
        return frozenset().union(*(self._set.policies[name].reads for part in parts for name in part.names.values()))

    def _verdict(self, may_run: _Answer, unattended: _Answer, *, holds: bool) -> Verdict:
        if not may_run.allowed:
            policies = self._named(may_run.forbids)
            return _said(Deny(Reason.PERMISSION_DENIED), policies, holds, "No policy permits this call.")
        running = self._named(may_run.permits)
        if not unattended.allowed:
            asking = self._named(unattended.forbids)
            first = asking[0] if asking else None
            outcome = (
                NeedsApproval(first.approvers, first.quorum, first.id)
                if first
                else NeedsApproval(DEFAULT_APPROVERS, 1, "")
            )
            otherwise = "No policy lets this call run without a person."
            return _said(outcome, asking, holds, otherwise, obligations=_together([*running, *asking]))
        alone = self._named(unattended.permits)
        policies = list(dict.fromkeys([*running, *alone]))
        labels = dict.fromkeys(label for policy in policies for label in policy.labels)
        return _said(Allow(), policies, holds, obligations=_together(policies), labels=tuple(labels))

    def _named(self, names: Iterable[str]) -> list[PolicyNotes]:
        return [self._set.policies[name].notes for name in sorted(names, key=self._order.__getitem__)]


class _Broken:
    """Whatever breaks inside the engine, the answer is the same: there is none, so the call is refused."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, MeshError | TooManyArgumentsError):
            self._log.error("policy engine broke", cause=error)
            raise no_decision() from error


def _answers() -> dict[str, _Answer]:
    return {INVOKE: _Answer(), WITHOUT_APPROVAL: _Answer()}


def _unreadable() -> Verdict:
    reason = "A policy reads the arguments of this call, and there are too many of them to be read."
    return Verdict(Deny(Reason.PERMISSION_DENIED), (reason,), holds_for_any_arguments=False)


def _said(
    outcome: Allow | Deny | NeedsApproval,
    policies: list[PolicyNotes],
    holds: bool,
    otherwise: str = "",
    *,
    obligations: tuple[Obligation, ...] = (),
    labels: tuple[str, ...] = (),
) -> Verdict:
    return Verdict(
        outcome,
        reasons=tuple(policy.reason for policy in policies) or (otherwise,),
        policies=tuple(policy.id for policy in policies),
        holds_for_any_arguments=holds,
        obligations=obligations,
        labels=labels,
    )


def _together(policies: list[PolicyNotes]) -> tuple[Obligation, ...]:
    """The obligations of several policies as one of each kind, the strictest."""
    values: dict[str, list[str]] = {}
    for policy in policies:
        for obligation in policy.obligations:
            values.setdefault(obligation.kind, []).extend(obligation.values)
    return tuple(Obligation(kind, _strictest(kind, found)) for kind, found in values.items())


def _strictest(kind: str, values: list[str]) -> tuple[str, ...]:
    if kind == "cap_rows":
        return (min(values, key=int),)
    if kind == "sandbox_tier":
        return (max(values, key=int),)
    return tuple(dict.fromkeys(values))
