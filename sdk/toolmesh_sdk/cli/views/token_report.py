"""Describes the claims of a token as labelled rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

_TIERS = {
    "user": "user: issued to a user",
    "agent": "agent: delegated to an agent",
    "invocation": "invocation: for one call, cannot be delegated",
}


def describe_claims(claims: Mapping[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    """Yield label and value of each claim. Unexpected claims are shown as they are: they are not verified."""
    yield "tier", _TIERS.get(str(claims.get("tier", "user")), str(claims.get("tier")))
    yield "subject", _text(claims.get("sub"))
    if claims.get("agent"):
        yield "agent", _text(claims["agent"])
    for position, link in enumerate(_as_list(claims.get("act")), 1):
        yield "chain" if position == 1 else "", f"{position}. {_text(link, 'sub')}  ({_text(link, 'jti')})"
    yield from _permissions(claims)
    yield from _bounds(claims)
    yield from _validity(claims, now)
    yield "id", _text(claims.get("jti"))
    yield "issuer", f"{_text(claims.get('iss'))}  for {_text(claims.get('aud'))}"


def _permissions(claims: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    tools = [f"{_text(t, 'tool')}{_version(t)}" for t in _as_list(claims.get("tools"))]
    yield "may call", ", ".join(tools) or "nothing"
    yield "scopes", _text(claims.get("scope")).replace(" ", ", ") or "none"
    for pattern in _as_list(claims.get("res")):
        yield "only on", _text(pattern)
    for constraint in _as_list(claims.get("args")):
        schema = constraint.get("schema") if isinstance(constraint, dict) else constraint
        yield "only with", f"{_text(constraint, 'tool')}: {_text(schema)}"


def _bounds(claims: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    budget = claims.get("budget")
    if isinstance(budget, dict) and budget:
        yield "budget", ", ".join(f"{name} {bound}" for name, bound in budget.items())
    yield "delegable", f"{_text(claims.get('depth', 0))} more times at most"
    for name, label in (("tenant", "tenant"), ("session", "session")):
        if claims.get(name):
            yield label, _text(claims[name])
    if claims.get("groups"):
        yield "groups", ", ".join(_text(group) for group in _as_list(claims["groups"]))
    yield "trust", _text(claims.get("trust", 0))
    proof = claims.get("cnf")
    yield "proof", _text(proof) if proof else "none: a bearer token"


def _validity(claims: Mapping[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    for name, label in (("nbf", "from"), ("exp", "until")):
        value = claims.get(name)
        if isinstance(value, int | float) and 0 <= value < 4e9:
            at = datetime.fromtimestamp(value, UTC)
            tail = f"  ({format_time_left(at, now)})" if name == "exp" else ""
            yield label, at.isoformat().replace("+00:00", "Z") + tail
        elif value is not None:
            yield label, _text(value)


def format_time_left(at: datetime, now: datetime) -> str:
    """Format the time until an expiry."""
    seconds = int((at - now).total_seconds())
    if seconds <= 0:
        return "expired"
    hours, rest = divmod(seconds, 3600)
    return f"{hours} h {rest // 60} min left" if hours else f"{rest // 60} min {rest % 60} s left"


def _version(grant: Any) -> str:
    version = grant.get("version") if isinstance(grant, dict) else ""
    return f" at {_text(version)}" if version else ""


def _text(value: Any, member: str = "") -> str:
    if member:
        value = value.get(member, "") if isinstance(value, dict) else value
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
