"""Finds the per-call context fields that a policy reads, and widens policies to an over-approximation without them.

A widened policy reads no per-call context. Where it neither matches nor fails, the original policy can neither match
nor fail for any context, and a decision about that caller and tool does not depend on the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.authz.domain.model import ContextField

Expression = Mapping[str, Any]

_CONTEXT_FIELDS = {
    "session_id": ContextField.SESSION,
    "session_labels": ContextField.LABELS,
    "token_labels": ContextField.LABELS,
    "arguments_digest": ContextField.DIGEST,
    "arguments": ContextField.ARGUMENTS,
    "resources": ContextField.ARGUMENTS,
    "time": ContextField.TIME,
    "zones": ContextField.TIME,
    "risk": ContextField.RISK,
}
# Context attributes that do not change from call to call.
_CONSTANT_ATTRIBUTES = frozenset({"environment", "granted_by_name", "session_bound"})
# Operators that cannot fail in a policy that passed strict validation. Arithmetic can overflow, and extension functions
# can reject a text.
_INFALLIBLE = frozenset(
    {"Value", "Var", ".", "has", "==", "!=", "<", "<=", ">", ">=", "in", "is", "like", "!", "&&", "||", "Set"}
)
_INFALLIBLE |= frozenset(
    {"contains", "containsAll", "containsAny", "isEmpty", "if-then-else", "hasTag", "getTag", "Record"}
)
_TRUE: Expression = {"Value": True}


def context_fields_read(conditions: Any) -> frozenset[ContextField]:
    """Return the context fields that conditions read; all of them where the context is used as a whole."""
    if isinstance(conditions, list):
        return frozenset().union(*(context_fields_read(item) for item in conditions))
    if not isinstance(conditions, dict):
        return frozenset()
    if conditions.get("Var") == "context":
        return frozenset(ContextField)
    for operator in (".", "has"):
        access = conditions.get(operator)
        if isinstance(access, dict) and access.get("left") == {"Var": "context"}:
            attribute = access.get("attr")
            return (
                frozenset()
                if attribute in _CONSTANT_ATTRIBUTES
                else frozenset({_CONTEXT_FIELDS[attribute]} if attribute in _CONTEXT_FIELDS else ContextField)
            )
    return frozenset().union(*(context_fields_read(value) for value in conditions.values()))


def widen(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return a permit that matches or fails whenever this policy could match or fail for any context."""
    body = _TRUE
    for condition in reversed(policy["conditions"]):
        expression = condition["body"]
        holds = _may_hold(expression) if condition["kind"] == "when" else _may_not_hold(expression)
        body = holds if _may_fail_on_context(expression) else {"&&": {"left": holds, "right": body}}
    return {
        "effect": "permit",
        "principal": policy["principal"],
        "action": policy["action"],
        "resource": policy["resource"],
        "conditions": [{"kind": "when", "body": body}],
    }


def may_fail(expression: Any) -> bool:
    """Return whether the evaluation of an expression can fail."""
    if isinstance(expression, list):
        return any(may_fail(item) for item in expression)
    if not isinstance(expression, dict):
        return False
    (operator, operands), *others = expression.items()
    if others or operator not in _INFALLIBLE:
        return True
    if operator in ("Value", "Var"):
        return False
    if operator == "Record":
        return any(may_fail(value) for value in operands.values())
    if operator == "Set":
        return may_fail(operands)
    return any(may_fail(value) for key, value in operands.items() if key not in ("attr", "pattern", "entity_type"))


def _may_fail_on_context(expression: Expression) -> bool:
    return may_fail(expression) and bool(context_fields_read(expression))


def _may_hold(expression: Expression) -> Expression:
    """Return an expression without per-call context that is true or fails wherever this one could be true or fail."""
    if not context_fields_read(expression):
        return expression
    operator, operands = next(iter(expression.items()))
    if operator == "&&":
        left = _may_hold(operands["left"])
        # A left operand that may fail decides the result, whatever the right operand is.
        return left if _may_fail_on_context(operands["left"]) else _both(left, _may_hold(operands["right"]))
    if operator == "||":
        return _either(_may_hold(operands["left"]), _may_hold(operands["right"]))
    if operator == "!":
        return _may_not_hold(operands["arg"])
    if operator == "if-then-else":
        return _branches(operands, _may_hold(operands["then"]), _may_hold(operands["else"]))
    return _TRUE


def _may_not_hold(expression: Expression) -> Expression:
    """Return an expression without per-call context that is true or fails wherever this one could be false or fail."""
    if not context_fields_read(expression):
        return {"!": {"arg": expression}}
    operator, operands = next(iter(expression.items()))
    if operator == "&&":
        return _either(_may_not_hold(operands["left"]), _may_not_hold(operands["right"]))
    if operator == "||":
        left = _may_not_hold(operands["left"])
        return left if _may_fail_on_context(operands["left"]) else _both(left, _may_not_hold(operands["right"]))
    if operator == "!":
        return _may_hold(operands["arg"])
    if operator == "if-then-else":
        return _branches(operands, _may_not_hold(operands["then"]), _may_not_hold(operands["else"]))
    return _TRUE


def _branches(operands: Mapping[str, Any], then: Expression, otherwise: Expression) -> Expression:
    condition = operands["if"]
    if not context_fields_read(condition):
        return {"if-then-else": {"if": condition, "then": then, "else": otherwise}}
    return _TRUE if may_fail(condition) else _either(then, otherwise)


def _both(left: Expression, right: Expression) -> Expression:
    return {"&&": {"left": left, "right": right}}


def _either(left: Expression, right: Expression) -> Expression:
    return {"||": {"left": left, "right": right}}
