"""The versions that the grants of a token cover."""

from __future__ import annotations

import pytest

from services.registry.domain.caller import Caller, Grant
from services.registry.tests.domain.discovery.discovery_corpus import version
from services.registry.tests.manifests import reader


@pytest.mark.parametrize(
    ("grants", "granted"),
    [
        ((), False),
        ((Grant("*"),), True),
        ((Grant("acme.*", "^2"),), True),
        ((Grant("acme.*", "^1"),), False),
        ((Grant("acme.*", "^1"), Grant("acme.find_order", "2.0.0")), True),
        ((Grant("other.*"),), False),
    ],
)
def test_a_grant_covers_names_and_versions(grants: tuple[Grant, ...], granted: bool) -> None:
    head = version(reader("acme.find_order", "2.0.0")).head
    assert Caller(grants, frozenset()).is_granted(head) is granted
