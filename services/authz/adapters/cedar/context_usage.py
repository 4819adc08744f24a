"""Which facts of one call a policy reads, and whether it could match at all, whatever those facts are.

For each policy that reads such facts a wider one is made that reads none of them: where the wider one neither matches nor fails, the
policy itself can neither match nor fail with any facts. Answers about that caller and tool then do not rest on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.authz.domain.model import Fact

Expression = Mapping[str, Any]

_FACTS = {
    "session_id": Fact.SESSION,
    "session_labels": Fact.LABELS,
    "arguments_digest": Fact.DIGEST,
    "arguments": Fact.ARGUMENTS,
    "resources": Fact.ARGUMENTS,
    "time": Fact.TIME,
    "risk": Fact.RISK,
}
# Attributes of the context that stay the same from call to call.
_STEADY = frozenset({"environment"})
# What cannot fail in a policy that passed strict validation. Arithmetic may overflow, and extensions may refuse a text.
_SAFE = frozenset(
    {"Value", "Var", ".", "has", "==", "!=", "<", "<=", ">", ">=", "in", "is", "like", "!", "&&", "||", "Set"}
)
_SAFE |= frozenset({"contains", "containsAll", "containsAny", "isEmpty", "if-then-else", "hasTag", "getTag", "Record"})
_CERTAIN: Expression = {"Value": True}


def facts_read(conditions: Any) -> frozenset[Fact]:
    """Return the facts of one call that conditions read; all of them where the context is used as a whole."""
    if isinstance(conditions, list):
        return frozenset().union(*(facts_read(item) for item in conditions))
    if not isinstance(conditions, dict):
        return frozenset()
    if conditions.get("Var") == "context":
        return frozenset(Fact)
    for operator in (".", "has"):
        access = conditions.get(operator)
        if isinstance(access, dict) and access.get("left") == {"Var": "context"}:
            named = access.get("attr")
            return frozenset() if named in _STEADY else frozenset({_FACTS[named]} if named in _FACTS else Fact)
    return frozenset().union(*(facts_read(value) for value in conditions.values()))


def widened(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return a permit that matches or fails whenever this policy could, whatever the facts of the call are."""
    body = _CERTAIN
    for condition in reversed(policy["conditions"]):
        expression = condition["body"]
        holds = _may_hold(expression) if condition["kind"] == "when" else _may_not_hold(expression)
        body = holds if _may_fail_on_facts(expression) else {"&&": {"left": holds, "right": body}}
    return {
        "effect": "permit",
        "principal": policy["principal"],
        "action": policy["action"],
        "resource": policy["resource"],
        "conditions": [{"kind": "when", "body": body}],
    }


def may_fail(expression: Any) -> bool:
    """Say whether evaluating this could fail."""
    if isinstance(expression, list):
        return any(may_fail(item) for item in expression)
    if not isinstance(expression, dict):
        return False
    (operator, operands), *others = expression.items()
    if others or operator not in _SAFE:
        return True
    if operator in ("Value", "Var"):
        return False
    if operator == "Record":
        return any(may_fail(value) for value in operands.values())
    if operator == "Set":
        return may_fail(operands)
    return any(may_fail(value) for key, value in operands.items() if key not in ("attr", "pattern", "entity_type"))


def _may_fail_on_facts(expression: Expression) -> bool:
    return may_fail(expression) and bool(facts_read(expression))


def _may_hold(expression: Expression) -> Expression:
    """An expression without facts of the call that is true or fails wherever this one could be true or fail."""
    if not facts_read(expression):
        return expression
    operator, operands = next(iter(expression.items()))
    if operator == "&&":
        left = _may_hold(operands["left"])
        # If the left may fail, then whatever the right says.
        return left if _may_fail_on_facts(operands["left"]) else _both(left, _may_hold(operands["right"]))
    if operator == "||":
        return _either(_may_hold(operands["left"]), _may_hold(operands["right"]))
    if operator == "!":
        return _may_not_hold(operands["arg"])
    if operator == "if-then-else":
        return _branches(operands, _may_hold(operands["then"]), _may_hold(operands["else"]))
    return _CERTAIN


def _may_not_hold(expression: Expression) -> Expression:
    """An expression without facts of the call that is true or fails wherever this one could be false or fail."""
    if not facts_read(expression):
        return {"!": {"arg": expression}}
    operator, operands = next(iter(expression.items()))
    if operator == "&&":
        return _either(_may_not_hold(operands["left"]), _may_not_hold(operands["right"]))
    if operator == "||":
        left = _may_not_hold(operands["left"])
        return left if _may_fail_on_facts(operands["left"]) else _both(left, _may_not_hold(operands["right"]))
    if operator == "!":
        return _may_hold(operands["arg"])
    if operator == "if-then-else":
        return _branches(operands, _may_not_hold(operands["then"]), _may_not_hold(operands["else"]))
    return _CERTAIN


def _branches(operands: Mapping[str, Any], then: Expression, otherwise: Expression) -> Expression:
    condition = operands["if"]
    if not facts_read(condition):
        return {"if-then-else": {"if": condition, "then": then, "else": otherwise}}
    return _CERTAIN if may_fail(condition) else _either(then, otherwise)


def _both(left: Expression, right: Expression) -> Expression:
    return {"&&": {"left": left, "right": right}}


def _either(left: Expression, right: Expression) -> Expression:
    return {"||": {"left": left, "right": right}}
