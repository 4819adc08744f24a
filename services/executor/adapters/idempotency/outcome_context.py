"""The context that a stored outcome is sealed with."""

from __future__ import annotations

from libs.common.json.jsonio import dump
from services.executor.adapters.idempotency.claim_rows import Scope


def outcome_context(scope: Scope, arguments_digest: str, invocation_id: str) -> str:
    """Return the context that a stored outcome is bound to, so that rows cannot be exchanged."""
    return dump([*scope, arguments_digest, invocation_id]).decode()
