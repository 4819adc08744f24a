"""HTTP headers of a call of a deprecated version: Deprecation (RFC 9745), Sunset (RFC 8594) and links (RFC 8288)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import format_datetime
from typing import Any

from services.gateway.transport.asgi_types import Headers

# What may stand between the angle brackets of a link.
_REFERENCE = re.compile(r"[!#-;=?-~]{1,2048}")


def deprecation_headers(result: Any) -> Headers:
    """Return the headers for the result of one call; none for a version that is not deprecated."""
    notice = result.get("deprecation") if isinstance(result, Mapping) else None
    if not isinstance(notice, Mapping):
        return []
    headers: Headers = []
    if since := _moment(notice.get("deprecate_time")):
        headers.append((b"deprecation", f"@{int(since.timestamp())}".encode()))
    if sunset := _moment(notice.get("sunset_time")):
        headers.append((b"sunset", format_datetime(sunset, usegmt=True).encode()))
    links = ((notice.get("successor"), "successor-version"), (notice.get("migration_guide_url"), "deprecation"))
    shown = [f'<{target}>; rel="{relation}"' for target, relation in links if _REFERENCE.fullmatch(str(target or ""))]
    return [*headers, (b"link", ", ".join(shown).encode())] if shown else headers


def _moment(text: Any) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) and text else None
