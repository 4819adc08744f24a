"""Reading one record."""

from __future__ import annotations

from services.audit.domain.errors import record_not_found
from services.audit.domain.log.tenancy import shown_to
from services.audit.domain.model import LAST_SEQUENCE, LoggedRecord
from services.audit.domain.ports import LogReader


async def get_record(log: LogReader, name: str, tenant: str = "") -> LoggedRecord:
    """Return the record called `logs/{log_id}/records/{sequence}` or `records/{record_id}`; raise NOT_FOUND without one, and for
    one that is not for readers of this tenant."""
    parts = name.split("/")
    if parts[0] == "logs":
        sequence = int(parts[3])
        found = await log.by_sequence(parts[1], sequence) if sequence <= LAST_SEQUENCE else None
    else:
        found = await log.by_record_id(parts[1])
    if found is None or not shown_to(tenant, found):
        raise record_not_found(name)
    return found
