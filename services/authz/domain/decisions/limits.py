"""What may be spent: the rules of a policy set's `limits.json`, the budgets of tokens, and which of them bound a call.

Nothing is counted here. A decision names what must be counted, and whoever runs the call counts it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from libs.common.auth.identity import Budget, Identity
from libs.common.tool_names import grant_covers
from services.authz.domain.decisions.limits_file import LimitProblem, LimitsError, read_limits
from services.authz.domain.model import CallFacts, Limit

__all__ = ["LimitProblem", "LimitRule", "Limits", "LimitsError", "limits_for", "parse_limits", "price_of"]

LIMITS_FILE = "limits.json"


@dataclass(frozen=True, slots=True)
class LimitRule:
    """One rule: whom it bounds, what of theirs counts together, and how much that may be."""

    id: str
    per: tuple[str, ...]
    """What splits it into buckets: caller, agent, tenant, session, tool; empty for one bucket for all."""
    tools: tuple[str, ...]
    """Patterns as in a token's grants; empty means every tool."""
    callers: tuple[re.Pattern[str], ...]
    agents: tuple[re.Pattern[str], ...]
    tenants: tuple[re.Pattern[str], ...]
    window_seconds: float | None
    calls: int | None
    cost_micros: int | None
    concurrent: int | None

    def bounds(self, caller: Identity, call: CallFacts) -> bool:
        """Say whether this call counts here."""
        return (
            (not self.tools or any(grant_covers(pattern, call.tool) for pattern in self.tools))
            and _among(self.callers, caller.subject)
            and _among(self.agents, caller.agent)
            and _among(self.tenants, caller.tenant)
        )

    def limit(self, caller: Identity, call: CallFacts) -> Limit:
        """Return the bucket that this call counts in, and its bounds."""
        parts = (f"{part}:{_PARTS[part](caller, call)}" for part in self.per)
        return Limit(
            bucket="/".join((f"limit:{self.id}", *parts)),
            window_seconds=self.window_seconds,
            max_calls=self.calls,
            max_cost_micros=self.cost_micros,
            max_concurrent=self.concurrent,
            source=self.id,
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """The rules of one policy set. Without rules nothing is bounded and nothing costs anything."""

    rules: tuple[LimitRule, ...] = ()
    prices: tuple[tuple[str, int], ...] = ()
    """Pattern of tools and what one call of them costs, in micro-units; the first that matches holds."""


def parse_limits(text: str) -> Limits:
    """Read a `limits.json`. Raises LimitsError with everything that is wrong in it, each with line and column."""
    document = read_limits(text)
    return Limits(
        rules=tuple(_rule(rule) for rule in document.get("limits", [])),
        prices=tuple(
            (pattern, price["cost_micros"]) for price in document.get("prices", []) for pattern in price["tools"]
        ),
    )


def limits_for(limits: Limits, caller: Identity, call: CallFacts) -> tuple[Limit, ...]:
    """Return everything that must be counted when this caller makes this call: what the rules bound, and what the token
    and each one it was derived from may spend."""
    bounded = [rule.limit(caller, call) for rule in limits.rules if rule.bounds(caller, call)]
    return (*bounded, *_budgets(caller))


def price_of(limits: Limits, call: CallFacts) -> int:
    """Return what one call of the tool costs, in micro-units."""
    for pattern, price in limits.prices:
        if grant_covers(pattern, call.tool):
            return price
    return 0


def _budgets(caller: Identity) -> Iterator[Limit]:
    """A token's budget is spent by everything derived from it, so each ancestor's is counted with the token's own."""
    for ancestor in caller.lineage:
        if ancestor.authority.budget:
            yield _budget(ancestor.token_id, ancestor.authority.budget, ancestor.authority.expires_at)
    if caller.budget:
        yield _budget(caller.token_id, caller.budget, caller.expires_at)


def _budget(token_id: str, budget: Budget, expires_at: float) -> Limit:
    bucket = f"token:{token_id}"
    return Limit(
        bucket=bucket,
        max_calls=budget.calls,
        max_cost_micros=budget.cost_micros,
        max_running_seconds=None if budget.running_ms is None else budget.running_ms / 1000,
        expires_at=expires_at,
        source=bucket,
    )


def _rule(rule: Mapping[str, Any]) -> LimitRule:
    return LimitRule(
        id=rule["id"],
        per=tuple(rule.get("per", ())),
        tools=tuple(rule.get("tools", ())),
        callers=_patterns(rule.get("callers", ())),
        agents=_patterns(rule.get("agents", ())),
        tenants=_patterns(rule.get("tenants", ())),
        window_seconds=rule.get("window_seconds"),
        calls=rule.get("calls"),
        cost_micros=rule.get("cost_micros"),
        concurrent=rule.get("concurrent"),
    )


def _patterns(texts: list[str] | tuple[()]) -> tuple[re.Pattern[str], ...]:
    """Patterns in which `*` stands for any text and everything else for itself."""
    return tuple(re.compile(_expression([re.escape(part) for part in text.split("*")]), re.DOTALL) for text in texts)


def _expression(parts: list[str]) -> str:
    """Each part but the last is taken where it is first met, once and for all, so that matching takes linear time."""
    if len(parts) == 1:
        return parts[0]
    return parts[0] + "".join(f"(?>.*?{part})" for part in parts[1:-1]) + ".*" + parts[-1]


def _among(patterns: tuple[re.Pattern[str], ...], value: str) -> bool:
    return not patterns or any(pattern.fullmatch(value) for pattern in patterns)


_PARTS: Mapping[str, Callable[[Identity, CallFacts], str]] = {
    "caller": lambda caller, call: caller.subject,
    "agent": lambda caller, call: caller.agent,
    "tenant": lambda caller, call: caller.tenant,
    # Whoever calls names its session; what another tenant calls the same is another one.
    "session": lambda caller, call: f"{quote(caller.tenant, safe='')}/{call.session_id or caller.session_id}",
    "tool": lambda caller, call: call.tool.qualified,
}
