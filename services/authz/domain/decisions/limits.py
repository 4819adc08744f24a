"""Selects the limits of a call: the rules of a policy set's `limits.json` and the budgets of tokens.

Nothing is counted here. A decision lists the limits, and the executor reserves them.
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
    """One rule: the calls it applies to, how they are grouped into buckets, and the limits of a bucket."""

    id: str
    per: tuple[str, ...]
    """The dimensions of its buckets: caller, agent, tenant, session, tool; empty for one bucket for all."""
    tools: tuple[str, ...]
    """Patterns as in a token's grants; empty means every tool."""
    callers: tuple[re.Pattern[str], ...]
    agents: tuple[re.Pattern[str], ...]
    tenants: tuple[re.Pattern[str], ...]
    window_seconds: float | None
    calls: int | None
    cost_micros: int | None
    concurrent: int | None

    def applies_to(self, caller: Identity, call: CallFacts) -> bool:
        """Return whether the rule limits this call."""
        return (
            (not self.tools or any(grant_covers(pattern, call.tool) for pattern in self.tools))
            and _matches_any(self.callers, caller.subject)
            and _matches_any(self.agents, caller.agent)
            and _matches_any(self.tenants, caller.tenant)
        )

    def limit(self, caller: Identity, call: CallFacts) -> Limit:
        """Return the limit of the bucket that this call counts in."""
        dimensions = (f"{dimension}:{_DIMENSIONS[dimension](caller, call)}" for dimension in self.per)
        return Limit(
            bucket="/".join((f"limit:{self.id}", *dimensions)),
            window_seconds=self.window_seconds,
            max_calls=self.calls,
            max_cost_micros=self.cost_micros,
            max_concurrent=self.concurrent,
            source=self.id,
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one policy set. Without rules nothing is limited, and without prices calls cost nothing."""

    rules: tuple[LimitRule, ...] = ()
    prices: tuple[tuple[str, int], ...] = ()
    """Tool pattern and price of one call in micro-units; the first match applies."""


def parse_limits(text: str) -> Limits:
    """Parse a `limits.json`. Raises LimitsError with all problems, each with line and column."""
    document = read_limits(text)
    return Limits(
        rules=tuple(_rule(rule) for rule in document.get("limits", [])),
        prices=tuple(
            (pattern, price["cost_micros"]) for price in document.get("prices", []) for pattern in price["tools"]
        ),
    )


def limits_for(limits: Limits, caller: Identity, call: CallFacts) -> tuple[Limit, ...]:
    """Return all limits of a call: those of the matching rules, and the budgets of the token and its ancestors."""
    ruled = [rule.limit(caller, call) for rule in limits.rules if rule.applies_to(caller, call)]
    return (*ruled, *_budgets(caller))


def price_of(limits: Limits, call: CallFacts) -> int:
    """Return the price of one call of the tool in micro-units."""
    for pattern, price in limits.prices:
        if grant_covers(pattern, call.tool):
            return price
    return 0


def _budgets(caller: Identity) -> Iterator[Limit]:
    """Yield the budgets of the token and of each ancestor: derived tokens spend their ancestors' budgets too."""
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
    """Compile patterns in which only `*` is special and matches any text."""
    return tuple(re.compile(_regex([re.escape(piece) for piece in text.split("*")]), re.DOTALL) for text in texts)


def _regex(pieces: list[str]) -> str:
    """Join the pieces between `*` with atomic groups, so that matching takes linear time."""
    if len(pieces) == 1:
        return pieces[0]
    return pieces[0] + "".join(f"(?>.*?{piece})" for piece in pieces[1:-1]) + ".*" + pieces[-1]


def _matches_any(patterns: tuple[re.Pattern[str], ...], value: str) -> bool:
    return not patterns or any(pattern.fullmatch(value) for pattern in patterns)


_DIMENSIONS: Mapping[str, Callable[[Identity, CallFacts], str]] = {
    "caller": lambda caller, call: caller.subject,
    "agent": lambda caller, call: caller.agent,
    "tenant": lambda caller, call: caller.tenant,
    # Callers choose session ids, so the same id of another tenant is another session.
    "session": lambda caller, call: f"{quote(caller.tenant, safe='')}/{call.session_id or caller.session_id}",
    "tool": lambda caller, call: call.tool.qualified,
}
