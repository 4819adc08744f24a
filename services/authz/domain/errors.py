"""The errors of the authorization domain."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.errors import MeshError, Reason, Violation


def grant_refused(violations: Sequence[Violation]) -> MeshError:
    """The requested token cannot be minted."""
    return MeshError(Reason.INVALID_REQUEST, violations=violations)


def token_too_large(limit_bytes: int) -> MeshError:
    """The token would exceed the size that verifiers accept."""
    message = "the grant does not fit into one token; use wildcards or several tokens"
    violation = Violation("tools", "token.size", message)
    return MeshError(Reason.INVALID_REQUEST, violations=[violation], metadata={"limit_bytes": str(limit_bytes)})


def token_unacceptable() -> MeshError:
    """Every verifier would refuse a token with the requested claims."""
    message = "no verifier would accept such a token: a value is too long, too large or malformed"
    return grant_refused([Violation("", "token.claims", message)])


def evaluate_scope_missing(scope: str) -> MeshError:
    """The caller lacks the scope for decisions about other subjects."""
    return MeshError(Reason.SCOPE_MISSING, metadata={"needs_scope": scope})


def authority_exceeded(violations: Sequence[Violation]) -> MeshError:
    """A derived token would have more authority than its parent."""
    return MeshError(Reason.AUTHORITY_EXCEEDED, violations=violations)


def parent_expired() -> MeshError:
    """The parent token is expired."""
    return MeshError(Reason.TOKEN_EXPIRED)


def did_not_found(did: str) -> MeshError:
    """The DID cannot be resolved."""
    return MeshError(Reason.DID_NOT_FOUND, metadata={"did": did[:512]})


def did_resolver_unavailable(did: str) -> MeshError:
    """The DID resolver does not respond."""
    return MeshError(Reason.SERVICE_UNAVAILABLE, metadata={"did": did[:512]}, retry_after=1.0)


def no_decision() -> MeshError:
    """The policy engine returned no decision."""
    return MeshError(Reason.POLICY_ENGINE_ERROR)


def policies_not_ready() -> MeshError:
    """This replica still compiles the active policy set."""
    message = "the active policy set is not loaded yet"
    return MeshError(Reason.SERVICE_UNAVAILABLE, message=message, retry_after=1.0)


def token_not_found(token_id: str) -> MeshError:
    """The token is not in the ledger."""
    return MeshError(Reason.NOT_FOUND, metadata={"token_id": token_id})


def key_not_found(key_id: str) -> MeshError:
    """The key is not published and has not signed any token."""
    return MeshError(Reason.NOT_FOUND, metadata={"key_id": key_id})


def revocation_forbidden(scope: str) -> MeshError:
    """Only an administrator may revoke tokens of others."""
    message = "only an administrator may revoke this"
    return MeshError(Reason.PERMISSION_DENIED, message=message, metadata={"needs_scope": scope})


def other_tenant() -> MeshError:
    """The caller belongs to a tenant, and the request concerns others."""
    return MeshError(Reason.AUTHORITY_EXCEEDED, metadata={"dimension": "tenant"})


def no_signing_key() -> MeshError:
    """All signing keys are revoked."""
    message = "all signing keys are revoked; a new one must be added"
    return MeshError(Reason.SERVICE_UNAVAILABLE, message=message, retry_after=5.0)


def watch_ended() -> MeshError:
    """This replica is shutting down; watchers reconnect to another one."""
    return MeshError(Reason.SERVICE_UNAVAILABLE, message="the watch ended", retry_after=0.1)
