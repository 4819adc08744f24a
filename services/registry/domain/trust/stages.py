"""The contribution stages and the gates between them. Pure.

The specification names the number of calls for Beta and GA but lost the figure they have to achieve. Here it is a
success rate: 95 % over 100 calls for Beta, 99 % over 1000 for GA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from libs.common.errors import MeshError, Reason, Violation
from libs.common.tool_names import ToolName
from services.registry.domain.trust.facts import Facts
from services.registry.domain.trust.usage import Usage

BETA_CALLS, BETA_RATE = 100, 0.95
GA_CALLS, GA_RATE = 1000, 0.99


class Stage(StrEnum):
    """The stages of a contributed tool, in order."""

    SUBMITTED = "submitted"
    SANDBOX = "sandbox"
    BETA = "beta"
    GA = "ga"
    VERIFIED = "verified"

    @property
    def next(self) -> Stage | None:
        """The stage after this one; None after the last."""
        order = list(Stage)
        index = order.index(self) + 1
        return order[index] if index < len(order) else None

    def is_before(self, other: Stage) -> bool:
        order = list(Stage)
        return order.index(self) < order.index(other)


@dataclass(frozen=True, slots=True)
class StageChange:
    """The permanent record of a stage change."""

    tool: ToolName
    before: Stage
    after: Stage
    actor: str
    reason: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition of a stage, whether it is met, and the evidence."""

    gate: str
    met: bool
    evidence: str


def gates_of(stage: Stage, facts: Facts | None) -> tuple[Gate, ...]:
    """Return the gates of a stage. Without facts, because no version is offered, the only gate is not met."""
    if facts is None:
        return (Gate("schema_validation", False, "no version may be chosen for new work"),)
    return tuple(gate(facts) for gate in _GATES[stage])


def gates_unmet(stage: Stage, gates: tuple[Gate, ...]) -> MeshError:
    """Return the error that lists every unmet gate."""
    return MeshError(
        Reason.FAILED_PRECONDITION,
        message=f"the tool does not meet every gate of {stage.value}",
        violations=[Violation(gate.gate, f"stage.{stage.value}", gate.evidence) for gate in gates if not gate.met],
        metadata={"stage": stage.value},
    )


def _schema_validation(facts: Facts) -> Gate:
    # Registered versions have passed schema validation at admission.
    return Gate("schema_validation", True, f"passed at admission on {facts.admitted.date()}")


def _verified(kind: str) -> Callable[[Facts], Gate]:
    def gate(facts: Facts) -> Gate:
        verification = next((candidate for name, candidate in facts.verifications.items() if name == kind), None)
        if verification is None:
            return Gate(kind, False, "not verified")
        return Gate(
            kind, verification.passed, f"{'passed' if verification.passed else 'failed'} on {verification.time.date()}"
        )

    return gate


def _audited(*levels: str) -> Callable[[Facts], Gate]:
    def gate(facts: Facts) -> Gate:
        name = "third_party_audit" if levels == ("third_party",) else "security_audit"
        failed = [level.value for level, audit in facts.audits.items() if not audit.passed]
        if failed:
            return Gate(name, False, f"the last {' and '.join(sorted(failed))} audit failed")
        passed = [level.value for level in facts.audits if level.value in levels]
        return Gate(name, bool(passed), f"passed: {', '.join(sorted(passed))}" if passed else "not audited")

    return gate


def _used(calls: int, rate: float) -> Callable[[Facts], Gate]:
    def gate(facts: Facts) -> Gate:
        usage: Usage | None = facts.usage
        if usage is None:
            return Gate("invocations", False, "usage cannot be read")
        achieved = usage.success_rate or 0.0
        met = usage.ran >= calls and achieved >= rate
        evidence = f"{usage.ran} calls, {achieved:.2%} succeeded; needs {calls} calls with {rate:.0%}"
        return Gate("invocations", met, evidence)

    return gate


_GATES: Mapping[Stage, tuple[Callable[[Facts], Gate], ...]] = {
    Stage.SUBMITTED: (_schema_validation,),
    Stage.SANDBOX: (_schema_validation, _verified("sandbox_deployment")),
    Stage.BETA: (_verified("integration_tests"), _used(BETA_CALLS, BETA_RATE)),
    Stage.GA: (_audited("self_assessed", "third_party"), _used(GA_CALLS, GA_RATE)),
    Stage.VERIFIED: (_audited("third_party"), _verified("sla_commitment"), _verified("provider_identity")),
}
