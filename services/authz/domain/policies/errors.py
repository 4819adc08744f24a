"""What can go wrong with policy sets, named by what happened."""

from __future__ import annotations

from collections.abc import Iterable

from libs.common.errors import MeshError, Reason, Violation
from services.authz.domain.policies.model import Problem


def policies_invalid(problems: Iterable[Problem]) -> MeshError:
    """The documents are no set that may be kept; each violation's path is `document:line:column`."""
    violations = [Violation(f"{p.document}:{p.line}:{p.column}", p.rule, p.message) for p in problems]
    return MeshError(Reason.POLICY_INVALID, violations=violations)


def set_not_found(name: str) -> MeshError:
    return MeshError(Reason.NOT_FOUND, metadata={"resource": name})


def decision_not_found(name: str) -> MeshError:
    """There is no such decision, or not for this caller: the two look the same to who may not know."""
    return MeshError(Reason.NOT_FOUND, metadata={"resource": name})


def not_the_active_set(expected: str, active: str) -> MeshError:
    """Somebody else was faster."""
    return MeshError(Reason.FAILED_PRECONDITION, metadata={"expected": expected, "active": active})


def no_earlier_set() -> MeshError:
    return MeshError(Reason.FAILED_PRECONDITION, message="no other set was active before")
