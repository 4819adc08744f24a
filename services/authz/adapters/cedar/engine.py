"""The Cedar policy engine. Cedar allows or denies, and the mesh also needs "approval required". So each call is
evaluated as two actions in one batch: `invoke` and `invoke_without_approval`."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from libs.common.errors import MeshError, Reason
from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.telemetry.log import Log
from services.authz.adapters.cedar.annotations import DEFAULT_APPROVERS, INVOKE, WITHOUT_APPROVAL, PolicyAnnotations
from services.authz.adapters.cedar.compiler import PolicySet
from services.authz.adapters.cedar.entities import TooManyArgumentsError
from services.authz.adapters.cedar.request import CedarRequest, CedarResponses, empty_responses
from services.authz.adapters.cedar.slicing import PolicySlice, compile_slice
from services.authz.domain.decisions.limits import Limits
from services.authz.domain.errors import no_decision
from services.authz.domain.model import Allow, ContextField, DecisionRequest, Deny, NeedsApproval, Obligation, Verdict
from services.authz.domain.policies.model import PolicyFinding

_CACHE_SIZE = 10_000
_FAILED = "A policy could not be evaluated, so the call is denied."


@dataclass(frozen=True, slots=True, eq=False)
class _SliceResult:
    """The responses of a slice. Equal results share one object, which then serves as a cache key."""

    policy_slice: PolicySlice
    responses: CedarResponses


@dataclass(frozen=True, slots=True)
class _StaticResult:
    """The part of an evaluation that does not depend on the per-call context."""

    responses: CedarResponses
    """Of the policies that read no per-call context."""
    context_slices: tuple[PolicySlice, ...]
    """The widened slices that matched: their policies must be evaluated with the context."""
    context_fields: frozenset[ContextField]
    verdict: Verdict | None
    """The verdict, unless it depends on the context or a policy failed."""


class CedarEvaluation:
    """A started evaluation of one request; an Evaluation."""

    __slots__ = ("_engine", "_static", "context_fields")

    def __init__(self, engine: CedarEngine, static: _StaticResult) -> None:
        self._engine, self._static = engine, static
        self.context_fields = static.context_fields

    def verdict(self, request: DecisionRequest) -> Verdict:
        return self._static.verdict or self._engine.finish(self._static, request)

    def certain_denial(self) -> Verdict | None:
        return self._engine.certain_denial(self._static)


class CedarEngine:
    """A PolicyEngine over a compiled policy set.

    The responses of a slice are cached by the attributes that its policies read. The static result of a request is
    cached by the slice results that it follows from, of which there are few.
    """

    def __init__(self, policy_set: PolicySet, log: Log) -> None:
        self._set = policy_set
        self._log, self._fail_closed = log, _FailClosed(log)
        self._clears_labels = any(policy.annotations.cleared_labels for policy in policy_set.policies.values())
        self._order = {name: index for index, name in enumerate(policy_set.policies)}
        self._slice_results = BoundedCache[Hashable, _SliceResult](_CACHE_SIZE)
        self._distinct_results = BoundedCache[Hashable, _SliceResult](_CACHE_SIZE)
        self._static_results = BoundedCache[Hashable, _StaticResult](_CACHE_SIZE)

    @property
    def version(self) -> str:
        return self._set.version

    @property
    def limits(self) -> Limits:
        return self._set.limits

    @property
    def clears_labels(self) -> bool:
        return self._clears_labels

    def context_fields(self, request: DecisionRequest) -> frozenset[ContextField]:
        """Return the context fields that the policies which could match read."""
        return self.evaluate(request).context_fields

    def decide(self, request: DecisionRequest) -> Verdict:
        """Return the verdict: allow only if both actions are allowed and no policy failed."""
        return self.evaluate(request).verdict(request)

    def evaluate(self, request: DecisionRequest) -> CedarEvaluation:
        """Evaluate the policies that read no per-call context."""
        with self._fail_closed:
            static = [self._evaluate_slice(request, one) for one in self._set.static.relevant(request)]
            widened = [self._evaluate_slice(request, one) for one in self._set.widened.relevant(request)]
            key = (*static, None, *widened)
            result = self._static_results.get(key)
            if result is None:
                result = self._combine(static, widened)
                if not any(_errors(one.responses) for one in (*static, *widened)):
                    self._static_results.put(key, result)
            return CedarEvaluation(self, result)

    def certain_denial(self, static: _StaticResult) -> Verdict | None:
        """Return the verdict of a forbid that no context can change; None without one."""
        if static.verdict is not None:
            return static.verdict if isinstance(static.verdict.outcome, Deny) else None
        invoke = static.responses[INVOKE]
        if not invoke.forbids:
            return None
        return _verdict_of(Deny(Reason.PERMISSION_DENIED), self._annotations_of(invoke.forbids), holds=True)

    def finish(self, static: _StaticResult, request: DecisionRequest) -> Verdict:
        """Evaluate the policies that depend on the context, and return the verdict of all policies."""
        responses = {action: response.copy() for action, response in static.responses.items()}
        with self._fail_closed:
            if static.context_slices:
                slices = [self._set.unwidened[one] for one in static.context_slices]
                try:
                    CedarRequest(self._set, request).evaluate_with_context(slices, static.context_fields, responses)
                except TooManyArgumentsError:
                    return _too_many_arguments()
        if errors := _errors(responses):
            # Cedar skips a policy that fails, so a failing forbid would not forbid anything.
            self._log.error("policy failed", errors=errors, tool=request.call.tool.qualified)
            return Verdict(Deny(Reason.POLICY_ENGINE_ERROR), (_FAILED,), holds_for_any_arguments=False)
        return self._verdict(responses, holds=not static.context_fields)

    def findings(self, request: DecisionRequest) -> list[PolicyFinding]:
        """Evaluate each policy by itself, in document order. Policies about another caller, tool or action are listed
        as not matched."""
        matched, failed = set[str](), set[str]()
        with self._fail_closed:
            cedar_request = CedarRequest(self._set, request)
            for names in self._findings_groups():
                self._find_matches(cedar_request, names, matched, failed)
        return [self._finding(name, name in matched, name in failed) for name in self._set.policies]

    def _findings_groups(self) -> Iterable[list[str]]:
        """Group policies so that Cedar reports every match of a group: permits apart from forbids, which would override
        them, and policies that read arguments apart from those that work with any number of arguments."""
        groups: dict[tuple[str, bool, bool], list[str]] = {}
        for name, policy in self._set.policies.items():
            fields = policy.context_fields
            groups.setdefault((policy.parsed["effect"], bool(fields), ContextField.ARGUMENTS in fields), []).append(
                name
            )
        return groups.values()

    def _find_matches(self, request: CedarRequest, names: list[str], matched: set[str], failed: set[str]) -> None:
        """Add the matching and the failing policies of a group. After a failure the group is bisected, because Cedar
        names the failing policy only in the error text."""
        policies = {name: self._set.policies[name] for name in names}
        parsed = {name: policy.parsed for name, policy in policies.items()}
        policy_slice = compile_slice(parsed, {name: policy.text for name, policy in policies.items()})
        fields = frozenset[ContextField]().union(*(policy.context_fields for policy in policies.values()))
        responses = empty_responses()
        try:
            if fields:
                request.evaluate_with_context([policy_slice], fields, responses)
            else:
                responses = request.evaluate(policy_slice)
        except TooManyArgumentsError:
            # The call was denied for the same reason.
            failed.update(names)
            return
        errors = _errors(responses)
        if errors and len(names) > 1:
            half = len(names) // 2
            self._find_matches(request, names[:half], matched, failed)
            self._find_matches(request, names[half:], matched, failed)
            return
        failed.update(names if errors else ())
        matched.update(*(response.permits | response.forbids for response in responses.values()))

    def _finding(self, name: str, matched: bool, failed: bool) -> PolicyFinding:
        policy = self._set.policies[name]
        annotations = policy.annotations
        return PolicyFinding(
            policy=annotations.id,
            effect=annotations.effect,
            matched=matched,
            failed=failed,
            reason=annotations.reason,
            document=policy.document,
            line=policy.line,
        )

    def _evaluate_slice(self, request: DecisionRequest, policy_slice: PolicySlice) -> _SliceResult:
        """Return the result of a slice, from the cache if its attributes have the same values. Failures are not
        cached."""
        key = policy_slice, policy_slice.cache_key(request)
        result = self._slice_results.get(key)
        if result is None:
            result = _SliceResult(policy_slice, CedarRequest(self._set, request).evaluate(policy_slice))
            if not _errors(result.responses):
                result = self._intern(result)
                self._slice_results.put(key, result)
        return result

    def _intern(self, result: _SliceResult) -> _SliceResult:
        """Return the one object that represents all equal results of a slice."""
        key = (
            result.policy_slice,
            *(frozenset(names) for one in result.responses.values() for names in (one.permits, one.forbids)),
        )
        interned = self._distinct_results.get(key)
        if interned is None:
            self._distinct_results.put(key, result)
        return interned or result

    def _combine(self, static: list[_SliceResult], widened: list[_SliceResult]) -> _StaticResult:
        responses = empty_responses()
        for result in static:
            for action, response in result.responses.items():
                responses[action].merge(response)
        # These slices hold policies that could match or fail with a suitable context.
        context_slices = tuple(
            result.policy_slice
            for result in widened
            if any(response.permits or response.errors for response in result.responses.values())
        )
        verdict = None if context_slices or _errors(responses) else self._verdict(responses, holds=True)
        return _StaticResult(responses, context_slices, self._context_fields_of(context_slices), verdict)

    def _context_fields_of(self, slices: Iterable[PolicySlice]) -> frozenset[ContextField]:
        names = (name for one in slices for name in one.names.values())
        return frozenset().union(*(self._set.policies[name].context_fields for name in names))

    def _verdict(self, responses: CedarResponses, *, holds: bool) -> Verdict:
        invoke, unattended = responses[INVOKE], responses[WITHOUT_APPROVAL]
        if not invoke.allowed:
            forbidding = self._annotations_of(invoke.forbids)
            return _verdict_of(Deny(Reason.PERMISSION_DENIED), forbidding, holds, "No policy permits this call.")
        permitting = self._annotations_of(invoke.permits)
        if not unattended.allowed:
            asking = self._annotations_of(unattended.forbids)
            first = asking[0] if asking else None
            outcome = (
                NeedsApproval(first.approvers, first.quorum, first.id, first.reason_required)
                if first
                else NeedsApproval(DEFAULT_APPROVERS, 1, "")
            )
            default = "No policy lets this call run without approval."
            obligations, labels = _merge_obligations([*permitting, *asking]), _merge_labels(permitting)
            return _verdict_of(outcome, asking, holds, default, obligations=obligations, labels=labels)
        policies = list(dict.fromkeys([*permitting, *self._annotations_of(unattended.permits)]))
        verdict = _verdict_of(
            Allow(), policies, holds, obligations=_merge_obligations(policies), labels=_merge_labels(policies)
        )
        cleared = dict.fromkeys(label for policy in policies for label in policy.cleared_labels)
        return dataclasses.replace(verdict, cleared_labels=tuple(cleared)) if cleared else verdict

    def _annotations_of(self, names: Iterable[str]) -> list[PolicyAnnotations]:
        return [self._set.policies[name].annotations for name in sorted(names, key=self._order.__getitem__)]


class _FailClosed:
    """Turns every unexpected exception of the engine into POLICY_ENGINE_ERROR, so that the call is refused."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, MeshError | TooManyArgumentsError):
            self._log.error("policy engine failed", cause=error)
            raise no_decision() from error


def _errors(responses: CedarResponses) -> list[str]:
    return [error for response in responses.values() for error in response.errors]


def _too_many_arguments() -> Verdict:
    reason = "A policy reads the arguments of this call, and there are too many of them to be read."
    return Verdict(Deny(Reason.PERMISSION_DENIED), (reason,), holds_for_any_arguments=False)


def _verdict_of(
    outcome: Allow | Deny | NeedsApproval,
    policies: list[PolicyAnnotations],
    holds: bool,
    default_reason: str = "",
    *,
    obligations: tuple[Obligation, ...] = (),
    labels: tuple[str, ...] = (),
) -> Verdict:
    return Verdict(
        outcome,
        reasons=tuple(policy.reason for policy in policies) or (default_reason,),
        policies=tuple(policy.id for policy in policies),
        holds_for_any_arguments=holds,
        obligations=obligations,
        labels=labels,
    )


def _merge_labels(policies: list[PolicyAnnotations]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(label for policy in policies for label in policy.labels))


def _merge_obligations(policies: list[PolicyAnnotations]) -> tuple[Obligation, ...]:
    """Merge the obligations of several policies into the strictest one of each kind."""
    values: dict[str, list[str]] = {}
    for policy in policies:
        for obligation in policy.obligations:
            values.setdefault(obligation.kind, []).extend(obligation.values)
    return tuple(Obligation(kind, _strictest(kind, merged)) for kind, merged in values.items())


def _strictest(kind: str, values: list[str]) -> tuple[str, ...]:
    if kind in ("cap_rows", "max_priority"):
        return (min(values, key=int),)
    if kind == "sandbox_tier":
        return (max(values, key=int),)
    return tuple(dict.fromkeys(values))
