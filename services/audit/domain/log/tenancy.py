"""Decides which records a reader may see: callers of a tenant only those of their tenant, all other readers
everything."""

from __future__ import annotations

import msgspec

from services.audit.domain.model import LoggedRecord


class _Caller(msgspec.Struct, gc=False, frozen=True):
    tenant: str = ""


class _Form(msgspec.Struct, gc=False, frozen=True):
    caller: _Caller = _Caller()


_read = msgspec.json.Decoder(_Form).decode


def is_visible_to(tenant: str, record: LoggedRecord) -> bool:
    """Return whether a reader of this tenant (empty: no tenant) may see a record. The tenant of an erased record is
    unknown, so only readers without a tenant see it."""
    if not tenant:
        return True
    return bool(record.canonical) and _read(record.canonical).caller.tenant == tenant
