"""Whose records a reader sees: a caller that belongs to a tenant those of its tenant's callers, everybody else all of them."""

from __future__ import annotations

import msgspec

from services.audit.domain.model import LoggedRecord


class _Caller(msgspec.Struct, gc=False, frozen=True):
    tenant: str = ""


class _Form(msgspec.Struct, gc=False, frozen=True):
    caller: _Caller = _Caller()


_read = msgspec.json.Decoder(_Form).decode


def shown_to(tenant: str, record: LoggedRecord) -> bool:
    """Say whether a record is for a reader of this tenant, or of none. Nobody knows any more whose an erased one was."""
    if not tenant:
        return True
    return bool(record.canonical) and _read(record.canonical).caller.tenant == tenant
