"""The tool around the language of numbers."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.builtin.arithmetic import Arithmetic


def call(expression: str) -> Any:
    return Arithmetic().call({"expression": expression})


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2 + 2", {"result": 4, "exact": True}),
        ("7 / 2", {"result": 3.5, "exact": False}),
        ("2 ** 64 - 1", {"result": 2**64 - 1, "exact": True}),
        ("2 ** 64", {"result": str(2**64), "exact": True}),
        ("-(2 ** 63)", {"result": -(2**63), "exact": True}),
        ("-(2 ** 63) - 1", {"result": str(-(2**63) - 1), "exact": True}),
    ],
)
def test_an_integer_is_exact_at_any_size(expression: str, result: Any) -> None:
    assert call(expression) == result


def test_a_division_by_zero_fails_and_says_so() -> None:
    with pytest.raises(MeshError) as caught:
        call("1 / 0")
    assert (caught.value.reason, caught.value.message) == (Reason.EXECUTION_FAILED, "division by zero")


def test_what_is_no_expression_is_an_invalid_argument() -> None:
    with pytest.raises(MeshError) as caught:
        call("__import__")
    assert caught.value.reason is Reason.ARGUMENTS_INVALID
    assert [v.path for v in caught.value.violations] == ["/expression"]
