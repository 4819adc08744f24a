"""A small language of numbers: parsed, checked and computed node by node. Nothing in it can do anything but arithmetic.

Integers are exact. Everything is bounded: the text by the schema, the depth, the operands of a function, and the size
of every intermediate number, so that no expression takes longer than a moment.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable

Number = int | float

MAX_DEPTH = 60
MAX_DIGITS = 4000
_MAX_BITS = int(MAX_DIGITS * math.log2(10))
_MAX_ROUNDING = 400
_MAX_OPERANDS = 100
_ALLOWED = re.compile(r"[0-9A-Za-z_.,+\-*/%() \t]*")


class ExpressionError(Exception):
    """The text is no expression of this language."""


class CalculationError(Exception):
    """The expression has no result, or none within bounds."""


def evaluate(text: str) -> Number:
    """Return the value of an expression. Raises ExpressionError or CalculationError, and nothing else."""
    if not _ALLOWED.fullmatch(text):
        raise ExpressionError("it contains a character that has no meaning here")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ExpressionError("it cannot be read") from None
    try:
        return _finite(_value(tree.body, 0))
    except ZeroDivisionError:
        raise CalculationError("division by zero") from None
    except OverflowError:
        raise CalculationError("a number is too large") from None
    except ValueError:
        raise CalculationError("a function is not defined for its operand") from None


def _value(node: ast.expr, depth: int) -> Number:
    if depth > MAX_DEPTH:
        raise ExpressionError("it is nested too deeply")
    if isinstance(node, ast.Constant):
        return _constant(node.value)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand, depth + 1))
    if isinstance(node, ast.BinOp):
        return _chain(node, depth)
    if isinstance(node, ast.Call):
        return _bounded(_call(node, depth))
    raise _foreign()


def _chain(node: ast.expr, depth: int) -> Number:
    """Compute a chain such as `a + b - c` from its left end. However long it is, it is no deeper than its operands."""
    steps: list[ast.BinOp] = []
    while isinstance(node, ast.BinOp):
        steps.append(node)
        node = node.left
    value = _value(node, depth + 1)
    for step in reversed(steps):
        operation = _BINARY.get(type(step.op))
        if operation is None:
            raise _foreign()
        value = _bounded(operation(value, _value(step.right, depth + 1)))
    return value


def _foreign() -> ExpressionError:
    return ExpressionError("it uses something other than numbers, operators and functions")


def _constant(value: object) -> Number:
    if type(value) is int or type(value) is float:
        return _bounded(value)
    raise ExpressionError("it contains something that is no number")


def _call(node: ast.Call, depth: int) -> Number:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in _FUNCTIONS or node.keywords or len(node.args) > _MAX_OPERANDS:
        raise ExpressionError(f"its functions are {', '.join(sorted(_FUNCTIONS))}")
    function, least, most = _FUNCTIONS[name]
    if not least <= len(node.args) <= most:
        raise ExpressionError(f"{name} has the wrong number of operands")
    return function(*[_value(argument, depth + 1) for argument in node.args])


def _multiply(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > _MAX_BITS + 1:
        raise CalculationError("a number is too large")
    return left * right


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0:
        if abs(base) > 1 and (base.bit_length() - 1) * exponent > _MAX_BITS:
            raise CalculationError("a number is too large")
        if abs(base) <= 1:
            # The exponent may have thousands of digits; what matters of it is whether it is odd.
            return base if exponent % 2 else base * base
    result = base**exponent
    if isinstance(result, complex):
        raise CalculationError("the power is not a real number")
    return float(result) if isinstance(result, float) else int(result)


def _square_root(operand: Number) -> Number:
    return math.sqrt(operand)


def _round(operand: Number, digits: Number | None = None) -> Number:
    if digits is None:
        return round(operand)
    if not isinstance(digits, int) or abs(digits) > _MAX_ROUNDING:
        raise CalculationError("round takes a whole number of digits, at most 400")
    return round(operand, digits)


def _bounded(value: Number) -> Number:
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise CalculationError("a number is too large")
        return value
    return _finite(value)


def _finite(value: Number) -> Number:
    if isinstance(value, float) and not math.isfinite(value):
        raise CalculationError("a number is too large")
    return value


_UNARY: dict[type[ast.unaryop], Callable[[Number], Number]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _multiply,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_FUNCTIONS: dict[str, tuple[Callable[..., Number], int, int]] = {
    "abs": (abs, 1, 1),
    "round": (_round, 1, 2),
    "min": (min, 1, _MAX_OPERANDS),
    "max": (max, 1, _MAX_OPERANDS),
    "sqrt": (_square_root, 1, 1),
}
