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


def token_unacceptable() -> MeshError:
    """Every verifier would refuse a token that holds what was asked."""
    violation = Violation(
        "", "token.claims", "no token can hold this: something in it is too long, too much or of the wrong form"
    )
    return grant_refused([violation])


def may_not_ask_about_others(scope: str) -> MeshError:
    """Only some may ask what policy says about others."""
    return MeshError(Reason.SCOPE_MISSING, metadata={"needs_scope": scope})


def authority_exceeded(violations: Sequence[Violation]) -> MeshError:
    """A derived token would hold more than the one it comes from."""
    return MeshError(Reason.AUTHORITY_EXCEEDED, violations=violations)


def parent_over() -> MeshError:
    """The token that would be derived from ends before anything could come of it."""
    return MeshError(Reason.TOKEN_EXPIRED)


def did_not_found(did: str) -> MeshError:
    """Nobody vouches for this DID."""
    return MeshError(Reason.DID_NOT_FOUND, metadata={"did": did[:512]})


def did_unanswered(did: str) -> MeshError:
    """Whoever could vouch for this DID does not answer now."""
    return MeshError(Reason.SERVICE_UNAVAILABLE, metadata={"did": did[:512]}, retry_after=1.0)


def no_decision() -> MeshError:
    """The policy engine gave no answer."""
    return MeshError(Reason.POLICY_ENGINE_ERROR)


def policies_not_ready() -> MeshError:
    """Other policies are active than those that could be asked here, and they are still being made ready."""
    return MeshError(Reason.SERVICE_UNAVAILABLE, message="the policies are being replaced", retry_after=1.0)


def token_not_issued(token_id: str) -> MeshError:
    """The ledger knows no such token."""
    return MeshError(Reason.NOT_FOUND, metadata={"token_id": token_id})


def key_not_known(key_id: str) -> MeshError:
    """No token was ever signed with such a key, and none would be."""
    return MeshError(Reason.NOT_FOUND, metadata={"key_id": key_id})


def not_theirs_to_revoke(scope: str) -> MeshError:
    """Only an administrator revokes what belongs to somebody else."""
    return MeshError(
        Reason.PERMISSION_DENIED, message="the token to be revoked is another's", metadata={"needs_scope": scope}
    )


def no_key_to_sign_with() -> MeshError:
    """Every key of the issuer was revoked."""
    return MeshError(
        Reason.SERVICE_UNAVAILABLE, message="every signing key was revoked; a new one must be added", retry_after=5.0
    )


def watch_ended() -> MeshError:
    """This replica is about to end; whoever watches comes back to another."""
    return MeshError(Reason.SERVICE_UNAVAILABLE, message="the watch ended", retry_after=0.1)
