"""Where a credential may be used."""

from __future__ import annotations

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.secret_store.secret import Binding, Secret
from services.executor.adapters.secrets.binding import require_bound

SECRET = Secret("key", "value", Binding(("api.example.com", "*.example.org"), ("acme",)))


@pytest.mark.parametrize(
    "hosts", [(), ("api.example.com",), ("api.example.com", "a.example.org"), ("*.example.org", "api.example.com")]
)
def test_a_secret_is_used_where_it_is_bound(hosts: tuple[str, ...]) -> None:
    require_bound(SECRET, "acme", hosts)


@pytest.mark.parametrize(
    ("namespace", "hosts"),
    [
        ("other", ()),
        ("acme", ("example.com",)),
        ("acme", ("api.example.com", "evil.com")),
        ("acme", ("*.example.com",)),
        ("acme", ("*.a.example.org",)),
    ],
)
def test_a_secret_is_used_nowhere_else(namespace: str, hosts: tuple[str, ...]) -> None:
    with pytest.raises(MeshError) as caught:
        require_bound(SECRET, namespace, hosts)
    assert caught.value.reason is Reason.CREDENTIAL_NOT_FOUND
    assert "value" not in str(caught.value.metadata)
