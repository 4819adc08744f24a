"""What can go wrong in authorization, named by what happened."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.errors import MeshError, Reason, Violation


def grant_refused(violations: Sequence[Violation]) -> MeshError:
    """The issuer cannot mint what was asked."""
    return MeshError(Reason.INVALID_REQUEST, violations=violations)


def token_too_large(limit_bytes: int) -> MeshError:
    """The grant is so long that no verifier would read the token."""
    violation = Violation(
        "tools", "token.size", "the grant does not fit into one token; use wildcards or several tokens"
    )
    return MeshError(Reason.INVALID_REQUEST, violations=[violation], metadata={"limit_bytes": str(limit_bytes)})


def no_decision() -> MeshError:
    """The policy engine gave no answer."""
    return MeshError(Reason.POLICY_ENGINE_ERROR)
