"""Selects the limits of a call: the rules of a policy set's `limits.json` and the budgets of tokens.

Nothing is counted here. A decision lists the limits, and the executor reserves them.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from libs.common.auth.identity import Budget, Identity
from libs.common.json.canonical import canonical
from libs.common.json.json_pointer import places, steps_of
from libs.common.json.jsonio import parse_object
from libs.common.tool_names import grant_covers
from services.authz.domain.decisions.limits_file import ARGUMENT, LimitProblem, LimitsError, read_limits
from services.authz.domain.model import CallFacts, Limit

__all__ = [
    "LimitProblem",
    "LimitRule",
    "Limits",
    "LimitsError",
    "UncountableArgumentError",
    "depends_on_arguments",
    "limits_for",
    "parse_limits",
    "price_of",
]

LIMITS_FILE = "limits.json"
# Values of one argument that a call is counted by, such as recipients.
MAX_VALUES = 32


class UncountableArgumentError(Exception):
    """A limit is per argument, and the call does not state the argument, or has more than MAX_VALUES values of it."""

    def __init__(self, rule: str, pointer: str) -> None:
        self.rule, self.pointer = rule, pointer
        super().__init__(rule)


@dataclass(frozen=True, slots=True)
class LimitRule:
    """One rule: the calls it applies to, how they are grouped into buckets, and the limits of a bucket."""

    id: str
    per: tuple[str, ...]
    """The dimensions of its buckets: caller, agent, tenant, session, tool, namespace, argument; empty for one bucket
    for all."""
    tools: tuple[str, ...]
    """Patterns as in a token's grants; empty means every tool."""
    callers: tuple[re.Pattern[str], ...]
    agents: tuple[re.Pattern[str], ...]
    tenants: tuple[re.Pattern[str], ...]
    window_seconds: float | None
    calls: int | None
    cost_micros: int | None
    concurrent: int | None
    argument: tuple[str, ...] | None = None
    """The steps of the argument whose values have a bucket each; None unless the rule is per argument."""

    def applies_to(self, caller: Identity, call: CallFacts) -> bool:
        """Return whether the rule limits this call."""
        return (
            (not self.tools or any(grant_covers(pattern, call.tool) for pattern in self.tools))
            and _matches_any(self.callers, caller.subject)
            and _matches_any(self.agents, caller.agent)
            and _matches_any(self.tenants, caller.tenant)
        )

    def limits(self, caller: Identity, call: CallFacts) -> Iterator[Limit]:
        """Yield the limit of each bucket that this call counts in: one for each value, if the rule is per argument.

        Raises UncountableArgumentError.
        """
        named = (f"{one}:{_DIMENSIONS[one](caller, call)}" for one in self.per if one != ARGUMENT)
        bucket = "/".join((f"limit:{self.id}", *named))
        if self.argument is None:
            yield self._limit(bucket)
            return
        for value in self._values(call, self.argument):
            yield self._limit(f"{bucket}/argument:{value}")

    def _values(self, call: CallFacts, steps: Sequence[str]) -> Sequence[str]:
        """Return the digests of the values of the argument, lists and objects taken apart."""
        found = dict.fromkeys(
            _digest(leaf)
            for _, value in (places(parse_object(call.arguments), steps) if call.arguments else ())
            for leaf in _leaves(value)
        )
        if not 0 < len(found) <= MAX_VALUES:
            raise UncountableArgumentError(self.id, "".join(f"/{step}" for step in steps))
        return list(found)

    def _limit(self, bucket: str) -> Limit:
        return Limit(
            bucket=bucket,
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
    """Return all limits of a call: those of the matching rules, and the budgets of the token and its ancestors.

    Raises UncountableArgumentError.
    """
    ruled = [limit for rule in limits.rules if rule.applies_to(caller, call) for limit in rule.limits(caller, call)]
    return (*ruled, *_budgets(caller))


def depends_on_arguments(limits: Limits, caller: Identity, call: CallFacts) -> bool:
    """Return whether calls of this caller to this tool are counted by their arguments."""
    return any(rule.argument is not None and rule.applies_to(caller, call) for rule in limits.rules)


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
        argument=steps_of(rule["argument"]) if ARGUMENT in rule else None,
    )


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the texts and numbers of a value. So a list of recipients counts for each of them."""
    if isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _leaves(member)
    elif value is not None:
        yield value


def _digest(value: Any) -> str:
    """Return a short digest, because a bucket is stored and shown, and a value may be personal. Case, width and spaces
    around a text do not tell values apart: they do not tell mailboxes apart either."""
    if isinstance(value, str):
        value = unicodedata.normalize("NFKC", value).strip().casefold()
    return hashlib.sha256(canonical(value)).hexdigest()[:32]


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
    # The tools of a namespace belong to one provider, and only its owner publishes there.
    "namespace": lambda caller, call: call.tool.namespace,
}
