"""Reads one record."""

from __future__ import annotations

from services.audit.domain.errors import record_not_found
from services.audit.domain.log.tenancy import is_visible_to
from services.audit.domain.model import LAST_SEQUENCE, LoggedRecord
from services.audit.domain.ports import LogReader


async def get_record(log: LogReader, name: str, tenant: str = "") -> LoggedRecord:
    """Return the record named `logs/{log_id}/records/{sequence}` or `records/{record_id}`. Raises NOT_FOUND if there is
    none, or if it belongs to another tenant."""
    parts = name.split("/")
    if parts[0] == "logs":
        sequence = int(parts[3])
        record = await log.get_by_sequence(parts[1], sequence) if sequence <= LAST_SEQUENCE else None
    else:
        record = await log.get_by_record_id(parts[1])
    if record is None or not is_visible_to(tenant, record):
        raise record_not_found(name)
    return record
