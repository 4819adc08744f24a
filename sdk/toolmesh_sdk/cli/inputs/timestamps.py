"""Parses times and durations of command-line options."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MILLISECONDS, _HOUR = {"ms": 1, "s": 1000, "m": 60_000}, 3_600_000
# The largest google.protobuf.Duration, about ten thousand years.
_MAX_SECONDS = 315_576_000_000


def parse_seconds(text: str, option: str, *, least: int = 1) -> int:
    """Parse a duration: `90`, `90s`, `15m`, `1h`, `2d`. A lifetime is at least one second; a budget may be zero."""
    match = re.fullmatch(r"([0-9]{1,100})([smhd]?)", text.strip())
    if match is None or int(match.group(1)) < least:
        raise typer.BadParameter(f"{text} is not a duration; write 90s, 15m, 1h or 2d", param_hint=option)
    seconds = int(match.group(1)) * _UNITS[match.group(2)]
    if seconds > _MAX_SECONDS:
        raise typer.BadParameter(f"{text} is too long", param_hint=option)
    return seconds


def parse_milliseconds(text: str) -> int:
    """Parse a short duration of at most an hour: `800ms`, `2s`, `1m`."""
    match = re.fullmatch(r"([0-9]{1,7})(ms|s|m)", text.strip())
    milliseconds = 0 if match is None else int(match.group(1)) * _MILLISECONDS[match.group(2)]
    if not 0 < milliseconds <= _HOUR:
        raise typer.BadParameter(f"{text} is not a time of at most an hour such as 800ms, 2s or 1m")
    return milliseconds


def check_short_time(text: str | None) -> str | None:
    """Return the text of an option that is a short duration; None means that it is not set. Raises BadParameter."""
    if text is not None:
        parse_milliseconds(text)
    return text


def parse_time(text: str) -> datetime:
    """Parse an ISO 8601 time, in UTC unless it has an offset. Raises ValueError."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def parse_past_time(text: str, hint: str) -> datetime:
    """Parse a time, or a duration before now such as 2h."""
    try:
        return parse_time(text)
    except ValueError:
        return _before_now(text, hint)


def parse_future_time(text: str, hint: str) -> datetime:
    """Parse a time, or a duration from now such as 30d."""
    try:
        return parse_time(text)
    except ValueError:
        seconds = parse_seconds(text, hint)
    try:
        return datetime.now(UTC) + timedelta(seconds=seconds)
    except OverflowError:
        raise typer.BadParameter(f"{text} from now is beyond the calendar", param_hint=hint) from None


def _before_now(text: str, hint: str) -> datetime:
    try:
        return datetime.now(UTC) - timedelta(seconds=parse_seconds(text, hint))
    except (typer.BadParameter, OverflowError):
        raise typer.BadParameter(f"{text} is neither a time nor a duration such as 2h", param_hint=hint) from None
