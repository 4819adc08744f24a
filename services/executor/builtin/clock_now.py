"""clock_now: tells the time."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from libs.common.errors import Violation
from libs.common.runtime.clock import Clock
from services.executor.builtin.tool import read_only_manifest
from services.executor.domain.errors import arguments_invalid


class ClockNow:
    """Returns the present moment in a time zone."""

    manifest = read_only_manifest(
        tool_id="clock_now",
        version="1.0.0",
        title="Current time",
        description=(
            "Returns the current date and time in an IANA time zone, as ISO 8601 text and as Unix milliseconds."
        ),
        search_hint="current date and time in a time zone",
        tags=["time"],
        input_schema={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "timezone": {
                    "type": "string",
                    "default": "UTC",
                    "maxLength": 64,
                    "pattern": "^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}$",
                    "description": "An IANA time zone such as `Europe/Vienna`.",
                }
            },
            "additionalProperties": False,
        },
        output_schema={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "iso": {"type": "string", "format": "date-time"},
                "unix_ms": {"type": "integer"},
                "timezone": {"type": "string"},
            },
            "required": ["iso", "unix_ms", "timezone"],
            "additionalProperties": False,
        },
        examples=[
            (
                "Without a time zone it is UTC",
                {},
                {"iso": "2026-01-01T00:00:00.000+00:00", "unix_ms": 1767225600000, "timezone": "UTC"},
            ),
            (
                "In Vienna",
                {"timezone": "Europe/Vienna"},
                {"iso": "2026-01-01T01:00:00.000+01:00", "unix_ms": 1767225600000, "timezone": "Europe/Vienna"},
            ),
        ],
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def call(self, arguments: dict[str, Any]) -> Any:
        """Return the time; an unknown time zone raises ARGUMENTS_INVALID."""
        name = arguments["timezone"]
        moment = self._clock.now().astimezone(_zone(name))
        milliseconds = int(moment.timestamp()) * 1000 + moment.microsecond // 1000
        return {"iso": moment.isoformat(timespec="milliseconds"), "unix_ms": milliseconds, "timezone": name}


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        # Always there, also on a machine without a time zone database.
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise arguments_invalid([Violation("/timezone", "timezone", "is not a known time zone")]) from None
