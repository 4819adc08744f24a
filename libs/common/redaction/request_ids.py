"""The request id of a caller as logs and peers may see it."""

from __future__ import annotations

import re
from functools import lru_cache

LONGEST_REQUEST_ID = 128
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


def shown_request_id(sent: str) -> str:
    """Return a UUID as it is and anything else redacted: `x-request-id` is free text of the caller."""
    name = sent[:LONGEST_REQUEST_ID]
    return name if not name or _UUID.fullmatch(name) else _redacted(name)


@lru_cache(maxsize=256)
def _redacted(name: str) -> str:
    # Imported by the first one: no process needs it to start.
    from libs.common.redaction.scanner import Scanner

    return str(Scanner().text(name).value)
