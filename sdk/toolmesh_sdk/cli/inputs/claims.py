"""What a token says about itself, read without checking its signature, and lifetimes as people write them."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import typer

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
# As far as a Duration of the contract reaches, ten thousand years.
_LONGEST = 315_576_000_000


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of a JWT. Whether they are true, only the mesh can say."""
    parts = token.strip().split(".")
    try:
        if len(parts) != 3:
            raise ValueError("a token has three parts")
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError as error:
        raise typer.BadParameter(f"not a token: {error}", param_hint="TOKEN") from None
    if not isinstance(claims, dict):
        raise typer.BadParameter("not a token: its claims are not an object", param_hint="TOKEN")
    return claims


def seconds_of(text: str, option: str, *, least: int = 1) -> int:
    """Read a span of time: `90`, `90s`, `15m`, `1h`, `2d`. A lifetime lasts a second at least; a budget may be none."""
    match = re.fullmatch(r"([0-9]{1,100})([smhd]?)", text.strip())
    if match is None or int(match.group(1)) < least:
        raise typer.BadParameter(f"{text} is not a span of time; write 90s, 15m, 1h or 2d", param_hint=option)
    seconds = int(match.group(1)) * _UNITS[match.group(2)]
    if seconds > _LONGEST:
        raise typer.BadParameter(f"{text} is longer than anything lasts", param_hint=option)
    return seconds


def listed(text: str | None) -> list[str]:
    """Read a list that is separated by commas; what was not said is an empty one."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]
