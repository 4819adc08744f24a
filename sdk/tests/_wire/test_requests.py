"""References to the names that audit records carry."""

from __future__ import annotations

import pytest
from toolmesh_sdk._wire.requests import record_filter, tool_prefix


@pytest.mark.parametrize(
    ("reference", "prefix"),
    [
        ("", ""),
        ("echo", "tools/core.echo/"),
        ("acme.send_email", "tools/acme.send_email/"),
        ("arith*", "tools/core.arith"),
        ("acme.*", "tools/acme."),
        ("tools/core.echo/versions/1", "tools/core.echo/versions/1"),
    ],
)
def test_a_reference_becomes_the_beginning_of_a_name(reference: str, prefix: str) -> None:
    assert tool_prefix(reference) == prefix


def test_an_unknown_filter_value_is_refused() -> None:
    with pytest.raises(ValueError):
        record_filter({"status": "fine"})
