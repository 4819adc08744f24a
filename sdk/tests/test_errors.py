"""Every row of the table arrives as the exception of its category, with everything the mesh said."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import toolmesh_sdk
from toolmesh.common.v1.error_table import ROWS
from toolmesh_sdk import Reason, ToolmeshError, Violation
from toolmesh_sdk.errors import CATEGORIES, error_for_reason

from libs.common.errors import MeshError
from libs.common.errors import Violation as MeshViolation

ONE_OF_EACH = {row.category: reason for reason, row in ROWS.items() if row.grpc_status}


def test_there_is_one_class_for_each_category_of_the_table() -> None:
    assert set(CATEGORIES) == {row.category for row in ROWS.values()}
    assert all(getattr(toolmesh_sdk, kind.__name__) is kind for kind in CATEGORIES.values())


@pytest.mark.parametrize("category", sorted(ONE_OF_EACH))
async def test_each_category_is_rebuilt_whole(category: str, drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    reason = ONE_OF_EACH[category]
    sent = MeshError(
        reason,
        message="what happened",
        violations=[MeshViolation("/text", "type", "text is needed")],
        metadata={"tool": "echo"},
        # Longer than the call may take, so that a retryable error is raised and not retried.
        retry_after=90.0,
        invocation_id="inv-1",
    )
    mesh.answer("Invoke", sent)
    with pytest.raises(CATEGORIES[category]) as caught:
        await drive(serve()).do("call", "echo", timeout=10)
    error, row = caught.value, ROWS[reason]
    assert (error.reason, error.code, error.category) == (reason, row.code, row.category)
    assert (error.error_class, error.retryable) == (row.error_class, row.retryable)
    assert (error.message, error.resolution) == ("what happened", row.resolution)
    assert (error.retry_after, error.invocation_id, error.metadata) == (90.0, "inv-1", {"tool": "echo"})
    assert error.violations == (Violation("/text", "type", "text is needed"),)
    assert (error.answered, error.attempts) == (True, 1)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_its_row(reason: Reason) -> None:
    error, row = error_for_reason(reason), ROWS[reason]
    assert type(error) is CATEGORIES[row.category]
    assert (error.code, error.error_class, error.retryable, error.message) == (
        *(row.code, row.error_class, row.retryable),
        row.title,
    )


def test_an_error_crosses_processes() -> None:
    error = error_for_reason(Reason.CIRCUIT_OPEN, metadata={"service": "weather"})
    error.attempts = 3
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(copy), copy.failure, copy.attempts) == (type(error), error.failure, 3)


def test_the_json_form_of_an_error_has_the_names_of_the_json_rpc_edge() -> None:
    document = error_for_reason(Reason.TOOL_NOT_FOUND, metadata={"tool": "nosuch"}).to_dict()
    assert document["reason"] == "TOOL_NOT_FOUND"
    assert document["code"] == "E3101"
    assert document["error_class"] == "unknown_tool"
    assert document["metadata"] == {"tool": "nosuch"}


def test_all_failures_are_toolmesh_errors() -> None:
    assert all(issubclass(kind, ToolmeshError) for kind in CATEGORIES.values())
