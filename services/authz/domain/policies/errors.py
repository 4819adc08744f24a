"""The errors of policy sets."""

from __future__ import annotations

from collections.abc import Iterable

from libs.common.errors import MeshError, Reason, Violation
from services.authz.domain.policies.model import PolicyProblem


def policies_invalid(problems: Iterable[PolicyProblem]) -> MeshError:
    """The documents are not a valid policy set; the path of each violation is `document:line:column`."""
    violations = [Violation(f"{p.document}:{p.line}:{p.column}", p.rule, p.message) for p in problems]
    return MeshError(Reason.POLICY_INVALID, violations=violations)


def set_not_found(name: str) -> MeshError:
    """There is no such policy set or document."""
    return MeshError(Reason.NOT_FOUND, metadata={"resource": name})


def decision_not_found(name: str) -> MeshError:
    """There is no such decision, or the caller may not read it; callers cannot distinguish the two."""
    return MeshError(Reason.NOT_FOUND, metadata={"resource": name})


def active_set_mismatch(expected: str, active: str) -> MeshError:
    """The active set is not the expected one: it was changed concurrently."""
    return MeshError(Reason.FAILED_PRECONDITION, metadata={"expected": expected, "active": active})


def no_previous_set() -> MeshError:
    """There is no earlier set to roll back to."""
    return MeshError(Reason.FAILED_PRECONDITION, message="there is no previously active set")
