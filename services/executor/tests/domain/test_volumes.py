"""The folder of a tenant in a volume."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.executor.domain.volumes import NO_TENANT, Volume, tenant_folder_name

TENANTS = st.one_of(st.text(max_size=300), st.sampled_from(["..", "/", "acme", "Acme", "a/b", "no-tenant", ""]))


@given(tenant=TENANTS)
def test_a_name_is_one_safe_step_of_a_path(tenant: str) -> None:
    name = tenant_folder_name(tenant)
    assert Path("/v", name).parent == Path("/v")
    assert name not in ("", ".", "..")
    assert name.isascii()
    assert name.isprintable()
    assert len(name) <= 255
    assert name == name.lower()


@given(one=TENANTS, other=TENANTS)
def test_two_tenants_never_have_one_name(one: str, other: str) -> None:
    assert (tenant_folder_name(one) == tenant_folder_name(other)) == (one == other)


@pytest.mark.parametrize("long", ["a" * 1000, "é" * 100])
def test_a_tenant_cannot_be_named_like_the_hash_of_another(long: str) -> None:
    hashed = tenant_folder_name(long)
    assert tenant_folder_name(hashed.removeprefix("tenant-")) != hashed


def test_only_a_shared_volume_is_one_folder_for_all() -> None:
    private, shared = Volume(Path("/v")), Volume(Path("/v"), shared=True)
    assert private.folder_of("acme") == Path("/v/tenant-acme")
    assert private.folder_of("") == Path("/v", NO_TENANT)
    assert shared.folder_of("acme") == shared.folder_of("") == Path("/v")
