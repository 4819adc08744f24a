"""Reads the rules of a deployment from a JSON file. A file that could approve by time is refused."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec

from services.approval.domain.rules import DEFAULT_STEPS, MAX_LIFETIME, ApprovalRules

_DURATION = re.compile(r"(\d{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MAX_STEPS = 16


class _Escalation(msgspec.Struct, forbid_unknown_fields=True):
    steps: list[str] = []
    fraction: float | None = None
    timeout: str = "1h"


class _RulesFile(msgspec.Struct, forbid_unknown_fields=True):
    escalation: _Escalation = msgspec.field(default_factory=_Escalation)
    on_timeout: Any = "deny"
    approval_lifetime: str = "30m"
    max_open: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 100
    break_glass_groups: list[str] = []


def read_rules_file(path: Path | str | None) -> ApprovalRules:
    """Return the rules in a file; the default ones without a file. Raises ValueError with what is wrong."""
    if not path:
        return ApprovalRules()
    try:
        content = Path(path).read_bytes()
    except OSError:
        raise ValueError("is not a file that can be read") from None
    return parse_rules(content)


def parse_rules(content: bytes) -> ApprovalRules:
    """Parse the rules of a deployment."""
    try:
        file = msgspec.json.decode(content, type=_RulesFile)
    except msgspec.MsgspecError as error:
        raise ValueError(f"is not a file of approval rules: {error}") from None
    if file.on_timeout != "deny":
        raise ValueError('on_timeout must be "deny": a ticket is never approved by time')
    escalation = file.escalation
    if escalation.steps and escalation.fraction is not None:
        raise ValueError("escalation has steps or a fraction, not both")
    if escalation.fraction is not None and not 0 < escalation.fraction <= 1:
        raise ValueError("escalation.fraction must be above 0 and at most 1")
    if len(escalation.steps) > _MAX_STEPS:
        raise ValueError(f"escalation.steps has more than {_MAX_STEPS} steps")
    return ApprovalRules(
        steps=tuple(_duration(step, "escalation.steps") for step in escalation.steps) or DEFAULT_STEPS,
        fraction=escalation.fraction,
        timeout=_duration(escalation.timeout, "escalation.timeout"),
        approval_lifetime=_duration(file.approval_lifetime, "approval_lifetime"),
        max_open=file.max_open,
        break_glass_groups=frozenset(file.break_glass_groups),
    )


def _duration(text: str, name: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    seconds = int(match[1]) * _SECONDS[match[2]] if match is not None else 0
    if not 0 < seconds <= MAX_LIFETIME.total_seconds():
        raise ValueError(f"{name} must be a duration such as 90s, 30m, 4h or 1d, of at most 7d")
    return timedelta(seconds=seconds)
