"""Reads how long a service asks to be left alone: Retry-After, and the RateLimit headers. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_LONGEST_DELAY = 86_400.0
# What RateLimit headers say of an answer that was given holds for an hour at most.
_LONGEST_LIMIT = 3600.0
_PREFIXES = ("ratelimit-", "x-ratelimit-", "x-rate-limit-")
_ITEM = re.compile(r";\s*([rt])=([0-9]{1,12})(?=\s*(?:;|,|$))")
# A reset beyond it is a time, and not a number of seconds.
_EPOCH = 1_000_000_000


def parse_retry_after(text: str, now: datetime) -> float | None:
    """Return the seconds of a Retry-After header, as a number or a date; None if there are none."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), _LONGEST_DELAY)
    try:
        at = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return min(max((at - now).total_seconds(), 0.0), _LONGEST_DELAY)


def parse_rate_limit(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds until a service takes requests again; None if it takes more, or does not say.

    `headers` have names in lower case. Understood are `RateLimit: "default";r=0;t=30`, and the older pairs such as
    `RateLimit-Remaining: 0` and `RateLimit-Reset: 30`, whose reset may be a time in seconds.
    """
    fields = dict(_ITEM.findall(headers.get("ratelimit", "")))
    remaining, reset = fields.get("r", ""), fields.get("t", "")
    for prefix in _PREFIXES:
        remaining = remaining or headers.get(f"{prefix}remaining", "").strip()
        reset = reset or headers.get(f"{prefix}reset", "").strip()
    if not _is_number(remaining) or int(remaining) > 0 or not _is_number(reset):
        return None
    seconds = float(int(reset)) if int(reset) < _EPOCH else int(reset) - now.timestamp()
    return min(seconds, _LONGEST_LIMIT) if seconds > 0 else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12
