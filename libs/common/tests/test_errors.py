"""The error table is complete, and an error survives the wire."""

from __future__ import annotations

import grpc
import pytest
from toolmesh.common.v1 import error_reason_pb2 as pb
from toolmesh.common.v1.error_table import ROWS, Reason

from libs.common.errors import MeshError, Violation
from libs.common.rpc.status import envelope, from_envelope, status_code

# The codes that the Tool Execution Layer specification defines, written down independently of the table.
SPECIFIED = [
    *range(3000, 3005), *range(3101, 3107), *range(3201, 3208), *range(3301, 3306), *range(3401, 3408),
    *range(3501, 3505),
    *range(3601, 3605), *range(3701, 3705), *range(3801, 3804), *range(3851, 3857), *range(3901, 3908),
]  # fmt: skip


def test_every_specified_code_has_a_row() -> None:
    assert sorted(set(SPECIFIED) - {reason.value for reason in Reason}) == []


def test_every_category_and_class_is_used() -> None:
    assert {row.category for row in ROWS.values()} == {
        n.removeprefix("ERROR_CATEGORY_") for n in pb.ErrorCategory.keys()[1:]
    }
    assert {row.error_class for row in ROWS.values()} == {
        n.removeprefix("ERROR_CLASS_").lower() for n in pb.ErrorClass.keys()[1:]
    }


@pytest.mark.parametrize("reason", Reason)
def test_each_row_is_whole_and_each_error_survives_the_wire(reason: Reason) -> None:
    row = ROWS[reason]
    assert row.code == f"E{reason.value}"
    assert row.title.endswith(".")
    assert row.resolution.endswith(".")
    error = MeshError(
        reason, violations=[Violation("/a", "type", "wrong")], metadata={"k": "v"}, retry_after=0.25, invocation_id="i"
    )
    assert isinstance(status_code(error), grpc.StatusCode)
    back = from_envelope(pb.ErrorEnvelope.FromString(envelope(error).SerializeToString()))
    assert (back.reason, back.violations, back.metadata, back.retry_after, back.invocation_id) == (
        reason, error.violations, {"k": "v"}, 0.25, "i",
    )  # fmt: skip


def test_a_reason_of_a_newer_build_is_internal() -> None:
    assert from_envelope(pb.ErrorEnvelope(reason=3999)).reason is Reason.INTERNAL  # type: ignore[arg-type]
