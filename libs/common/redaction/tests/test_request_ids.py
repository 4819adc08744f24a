"""What logs see of a caller's request id."""

from __future__ import annotations

import pytest

from libs.common.redaction.request_ids import shown_request_id


@pytest.mark.parametrize(
    "name", ["", "order-17", "0190a8c4-7e2b-7c3d-9f00-aabbccddeeff", "4bf92f3577b34da6a3ce929d0e0e4736"]
)
def test_an_id_is_shown_as_it_is(name: str) -> None:
    assert shown_request_id(name) == name


@pytest.mark.parametrize(
    "name", ["alice@example.com", "4111111111111111", "token=a1b2c3d4e5", "hunter22-pwd:-aaa-@bbb-c@example.com"]
)
def test_a_secret_in_an_id_is_removed_also_in_the_shape_of_a_uuid(name: str) -> None:
    assert "[redacted:" in shown_request_id(name)


def test_an_id_is_bounded() -> None:
    assert len(shown_request_id("a" * 1000)) == 128
