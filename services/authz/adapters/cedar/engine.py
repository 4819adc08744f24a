"""Policy answered by Cedar. Cedar knows two answers and the mesh three, so every call is put to it as two questions:
may it run, and may it run without a person? Both are evaluated in one pass over the same entities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from services.authz.adapters.cedar.annotations import DEFAULT_APPROVERS, INVOKE, WITHOUT_APPROVAL, PolicyNotes
from services.authz.adapters.cedar.compiler import PolicySet
from services.authz.adapters.cedar.entities import TooManyArgumentsError
from services.authz.adapters.cedar.lru_cache import Remembered
from services.authz.adapters.cedar.request import Answers, Case, no_answers
from services.authz.adapters.cedar.slicing import Part, part_of
from services.authz.domain.decisions.limits import Limits
from services.authz.domain.errors import no_decision
from services.authz.domain.model import Allow, Deny, Fact, NeedsApproval, Obligation, Question, Verdict
from services.authz.domain.policies.model import Finding

_FAILED = "A policy could not be evaluated, so the call is denied."


@dataclass(frozen=True, slots=True, eq=False)
class _Said:
    """What a part answered. There is one of a kind, however many questions it is the answer to."""

    part: Part
    answers: Answers


@dataclass(frozen=True, slots=True)
class _Known:
    """What is so whatever the facts of the call are."""

    answers: Answers
    """Of the policies that read nothing of the call."""
    touched: tuple[Part, ...]
    """The parts of the set that the call's own facts decide about."""
    reads: frozenset[Fact]
    verdict: Verdict | None
    """What comes of it, unless the call's own facts matter or a policy failed."""


class _Considered:
    """Keeps the promise of the port."""

    __slots__ = ("_engine", "_known", "_question", "reads")

    def __init__(self, engine: CedarEngine, question: Question, known: _Known) -> None:
        self._engine, self._question, self._known = engine, question, known
        self.reads = known.reads

    def verdict(self, labels: frozenset[str] | None) -> Verdict:
        if self._known.verdict is not None:
            return self._known.verdict
        question = self._question if labels is self._question.labels else replace(self._question, labels=labels)
        return self._engine.concluded(self._known, question)


class CedarEngine:
    """A PolicyEngine over a loaded policy set, which it never reads again. What a part answered is remembered by what its policies read of
    the question, so that Cedar is not asked the same twice; what follows is remembered by the answers, of which there are few."""

    def __init__(self, policy_set: PolicySet, log: Log) -> None:
        self._set = policy_set
        self._log, self._broken = log, _Broken(log)
        self._order = {name: index for index, name in enumerate(policy_set.policies)}
        self._said, self._alike = Remembered[_Said](), Remembered[_Said]()
        self._known = Remembered[_Known]()

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
        with self._broken:
            steady = [self._answered(question, part) for part in self._set.steady.relevant(question)]
            wide = [self._answered(question, part) for part in self._set.widened.relevant(question)]
            key = (*steady, None, *wide)
            known = self._known.find(key)
            if known is None:
                known = self._following(steady, wide)
                if not any(_errors(said.answers) for said in (*steady, *wide)):
                    self._known.keep(key, known)
            return _Considered(self, question, known)

    def concluded(self, known: _Known, question: Question) -> Verdict:
        """Put the question to the policies that the facts of the call decide about, and say what comes of it all."""
        answers = {action: answer.copy() for action, answer in known.answers.items()}
        with self._broken:
            if known.touched:
                parts = [self._set.narrow[part] for part in known.touched]
                try:
                    Case(self._set, question).ask_about_the_call(parts, known.reads, answers)
                except TooManyArgumentsError:
                    return _unreadable()
        if errors := _errors(answers):
            # Cedar skips a policy that fails, so that a failing forbid would forbid nothing.
            self._log.error("policy failed", errors=errors, tool=question.call.tool.qualified)
            return Verdict(Deny(Reason.POLICY_ENGINE_ERROR), (_FAILED,), holds_for_any_arguments=False)
        return self._verdict(answers, holds=not known.reads)

    def findings(self, question: Question) -> list[Finding]:
        """Say what each policy makes of a question, in the order of the documents. Those that cannot be about this caller or tool, and
        those about the other half of the question, are among them as not matched."""
        matched, failed = set[str](), set[str]()
        with self._broken:
            case = Case(self._set, question)
            for names in self._alike_in_kind():
                self._look_at(case, names, matched, failed)
        return [self._finding(name, name in matched, name in failed) for name in self._set.policies]

    def _alike_in_kind(self) -> Iterable[list[str]]:
        """Policies that can be asked together so that Cedar names each that matches: permits apart from what would overrule them, and those
        that read arguments apart from those that may be asked however many there are."""
        kinds: dict[tuple[str, bool, bool], list[str]] = {}
        for name, policy in self._set.policies.items():
            kind = policy.parsed["effect"], bool(policy.reads), Fact.ARGUMENTS in policy.reads
            kinds.setdefault(kind, []).append(name)
        return kinds.values()

    def _look_at(self, case: Case, names: list[str], matched: set[str], failed: set[str]) -> None:
        """Find those of some policies that match and those that fail. Where one fails they are asked by halves, because Cedar says which
        one it was in words only."""
        policies = {name: self._set.policies[name] for name in names}
        part = part_of({name: each.parsed for name, each in policies.items()}, {n: p.text for n, p in policies.items()})
        reads, answers = frozenset[Fact]().union(*(each.reads for each in policies.values())), no_answers()
        try:
            if reads:
                case.ask_about_the_call([part], reads, answers)
            else:
                answers = case.ask(part)
        except TooManyArgumentsError:
            # Nobody could be told of them, which is why the call was denied.
            failed.update(names)
            return
        errors = _errors(answers)
        if errors and len(names) > 1:
            half = len(names) // 2
            self._look_at(case, names[:half], matched, failed)
            self._look_at(case, names[half:], matched, failed)
            return
        failed.update(names if errors else ())
        matched.update(*(answer.permits | answer.forbids for answer in answers.values()))

    def _finding(self, name: str, matched: bool, failed: bool) -> Finding:
        policy = self._set.policies[name]
        notes = policy.notes
        return Finding(
            policy=notes.id,
            effect=notes.effect,
            matched=matched,
            failed=failed,
            reason=notes.reason,
            document=policy.document,
            line=policy.line,
        )

    def _answered(self, question: Question, part: Part) -> _Said:
        """Return what a part says, which it has said before of whatever it reads alike."""
        key = part, part.reading(question)
        said = self._said.find(key)
        if said is None:
            said = _Said(part, Case(self._set, question).ask(part))
            if not _errors(said.answers):
                said = self._one_of_a_kind(said)
                self._said.keep(key, said)
        return said

    def _one_of_a_kind(self, said: _Said) -> _Said:
        kind = (
            said.part,
            *(frozenset(found) for each in said.answers.values() for found in (each.permits, each.forbids)),
        )
        known = self._alike.find(kind)
        if known is None:
            self._alike.keep(kind, said)
        return known or said

    def _following(self, steady: list[_Said], wide: list[_Said]) -> _Known:
        """Return what follows from the answers of the parts."""
        answers = no_answers()
        for said in steady:
            for action, answer in said.answers.items():
                answers[action].merge(answer)
        # These have policies that could match or fail, if the facts of the call were the right ones.
        touched = tuple(
            said.part for said in wide if any(each.permits or each.errors for each in said.answers.values())
        )
        verdict = None if touched or _errors(answers) else self._verdict(answers, holds=True)
        return _Known(answers, touched, self._facts(touched), verdict)

    def _facts(self, parts: Iterable[Part]) -> frozenset[Fact]:
        return frozenset().union(*(self._set.policies[name].reads for part in parts for name in part.names.values()))

    def _verdict(self, answers: Answers, *, holds: bool) -> Verdict:
        may_run, unattended = answers[INVOKE], answers[WITHOUT_APPROVAL]
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


def _errors(answers: Answers) -> list[str]:
    return [error for answer in answers.values() for error in answer.errors]


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
