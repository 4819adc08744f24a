"""The headers that warn callers of a deprecated version."""

from __future__ import annotations

from typing import Any

import pytest

from services.gateway.transport.deprecation_headers import deprecation_headers

SUCCESSOR = "tools/acme.find/versions/2.0.0"


def test_a_deprecated_version_says_since_when_until_when_and_what_comes_next() -> None:
    notice = {
        "deprecate_time": "2026-01-01T00:00:00Z",
        "sunset_time": "2026-11-19T08:30:00.5Z",
        "successor": SUCCESSOR,
        "migration_guide_url": "https://acme.example/guide?to=2",
    }
    assert dict(deprecation_headers({"deprecation": notice})) == {
        b"deprecation": b"@1767225600",
        b"sunset": b"Thu, 19 Nov 2026 08:30:00 GMT",
        b"link": f'<{SUCCESSOR}>; rel="successor-version", '.encode()
        + b'<https://acme.example/guide?to=2>; rel="deprecation"',
    }


@pytest.mark.parametrize(
    ("result", "headers"),
    [
        ({}, {}),
        (None, {}),
        ([], {}),
        ({"deprecation": None}, {}),
        ({"deprecation": {}}, {}),
        ({"deprecation": {"successor": "", "migration_guide_url": ""}}, {}),
        ({"deprecation": {"sunset_time": "2026-11-19T08:30:00Z"}}, {b"sunset": b"Thu, 19 Nov 2026 08:30:00 GMT"}),
        # Nothing of a manifest can break out of a header.
        ({"deprecation": {"migration_guide_url": "https://a.example/\r\nx: y"}}, {}),
        ({"deprecation": {"migration_guide_url": "https://a.example/>; rel=x"}}, {}),
    ],
)
def test_other_results_have_no_such_headers(result: Any, headers: dict[bytes, bytes]) -> None:
    assert dict(deprecation_headers(result)) == headers
