"""The deadline header of a caller."""

from __future__ import annotations

import pytest

from libs.common.deadline_header import allowed_seconds, parse_deadline
from libs.common.errors import MeshError, Reason


@pytest.mark.parametrize(("text", "ms"), [("1", 1), ("300000", 300_000), ("0050", 50)])
def test_a_deadline_is_a_number_of_milliseconds(text: str, ms: int) -> None:
    assert parse_deadline(text) == ms


def test_the_least_deadline_holds() -> None:
    assert allowed_seconds(None, None, 30.0) == 30.0
    assert allowed_seconds(60_000, None, 30.0) == 60.0
    assert allowed_seconds(60_000, 1_500, 30.0) == 1.5
    assert allowed_seconds(None, 45_000, 30.0) == 45.0


@pytest.mark.parametrize("text", ["", "0", "-5", "soon", "1e3", "300001", "1000,2000", "grpc-timeout"])
def test_a_malformed_deadline_is_refused_by_its_header(text: str) -> None:
    with pytest.raises(MeshError) as caught:
        parse_deadline(text)
    [violation] = caught.value.violations
    assert caught.value.reason is Reason.INVALID_REQUEST
    assert violation.path == ("grpc-timeout" if text == "grpc-timeout" else "x-deadline-ms")
