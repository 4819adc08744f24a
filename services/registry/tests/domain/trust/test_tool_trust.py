"""What policies see of the trust in a tool."""

from __future__ import annotations

import pytest

from services.registry.domain.trust.tool_trust import is_known_publisher, percent


@pytest.mark.parametrize(
    ("score", "shown"), [(0.0, 0), (0.29, 29), (0.7, 70), (0.999, 99), (1.0, 100), (-0.1, 0), (1.2, 100)]
)
def test_a_score_is_rounded_down_to_hundredths(score: float, shown: int) -> None:
    assert percent(score) == shown


@pytest.mark.parametrize(
    ("owner", "verified", "known"),
    [
        ("operator", False, True),
        ("executor", False, True),
        ("did:web:acme.example", False, False),
        ("did:web:acme.example", True, True),
        ("orchestrator", False, False),
    ],
)
def test_the_mesh_and_verified_providers_are_known_publishers(owner: str, verified: bool, known: bool) -> None:
    assert is_known_publisher(owner, verified) is known
