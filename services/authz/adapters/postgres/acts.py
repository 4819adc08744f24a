"""The administrative acts of authz: what the audit log records of tokens, revocations and policy sets."""

from __future__ import annotations

from datetime import datetime

from libs.audit_client.act import Act, ActKind
from services.authz.domain.model import LedgerEntry, Minting, Revocation
from services.authz.domain.policies.model import NewPolicySet, StoredPolicySet

_MINTINGS = {
    Minting.ISSUED: ActKind.TOKEN_ISSUED,
    Minting.EXCHANGED: ActKind.TOKEN_EXCHANGED,
    Minting.DELEGATED: ActKind.TOKEN_DELEGATED,
    Minting.NARROWED: ActKind.TOKEN_NARROWED,
}
_REVOKED = {"token": "tokens", "subject": "subjects", "key": "signingKeys"}


def token_minted(entry: LedgerEntry) -> Act:
    """Return the act that minted a token. The token appears by its id and digest."""
    exchanged = entry.minting is Minting.EXCHANGED
    return Act(
        kind=_MINTINGS[entry.minting],
        resource=f"tokens/{entry.token_id}",
        time=entry.issued_at,
        after=entry.digest,
        details={
            "subject": entry.subject,
            "agent": entry.agent,
            "tenant": entry.tenant,
            "tier": entry.tier,
            "scopes": list(entry.scopes),
            "tools": [f"{grant.tool}@{grant.version_constraint}".rstrip("@") for grant in entry.tools],
            "expire_time": entry.expires_at.isoformat(),
            "signing_key": entry.key_id,
            "parent": f"tokens/{entry.parent_id}" if entry.parent_id else "",
        },
        # The holder of the outside token asked for it.
        subject=entry.subject if exchanged else "",
        tenant=entry.tenant if exchanged else "",
    )


def revoked(revocation: Revocation) -> Act:
    """Return the act that revoked a token, a subject or a signing key."""
    kind, value = revocation.target.kind, revocation.target.value
    return Act(
        kind=ActKind.TOKEN_REVOKED,
        resource=f"{_REVOKED[kind]}/{value}",
        time=revocation.revoked_at,
        reason=revocation.reason,
        details={"tenant": revocation.tenant, "expire_time": revocation.expires_at.isoformat()},
    )


def policy_put(new: NewPolicySet, number: int, active_version: str) -> Act:
    """Return the act that stored a policy set. `before` is the active set, which it is likely to replace."""
    return Act(
        kind=ActKind.POLICY_PUT,
        resource=f"policySets/{number}",
        time=new.put_time,
        before=active_version,
        after=new.version,
        reason=new.comment,
        details={"policies": new.policy_count, "documents": sorted(new.documents)},
    )


def policy_activated(kind: ActKind, stored: StoredPolicySet, before: StoredPolicySet | None, now: datetime) -> Act:
    """Return the act that made a policy set the active one."""
    return Act(
        kind=kind,
        resource=stored.name,
        time=now,
        before=before.version if before is not None else "",
        after=stored.version,
        details={"replaces": before.name if before is not None else ""},
    )
