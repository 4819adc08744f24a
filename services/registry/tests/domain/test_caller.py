"""The versions that the grants of a token cover."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.registry.domain.caller import Caller, Grant
from services.registry.tests.domain.discovery.discovery_corpus import load, version


@pytest.mark.parametrize(
    ("grants", "granted"),
    [
        ((), False),
        ((Grant("*"),), True),
        ((Grant("{namespace}.*", "^2"),), True),
        ((Grant("{namespace}.*", "^1"),), False),
        ((Grant("{namespace}.*", "^1"), Grant("{name}", "2.0.0")), True),
        ((Grant("other.*"),), False),
    ],
)
def test_a_grant_covers_names_and_versions(grants: tuple[Grant, ...], granted: bool) -> None:
    head = version(load()["tools"][0], "2.0.0").head
    namespace, name = head.tool.namespace, head.tool.qualified
    grants = tuple(replace(grant, pattern=grant.pattern.format(namespace=namespace, name=name)) for grant in grants)
    assert Caller(grants, frozenset()).is_granted(head) is granted
