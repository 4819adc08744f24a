"""A policy row admits callers of a tenant only if it says what they may see."""

from __future__ import annotations

import pytest

from libs.common.rpc.policy import Row, Tenancy, for_caller


@pytest.mark.parametrize(
    ("tenancy", "admits"),
    [
        (None, False),
        (Tenancy.OWN, True),
        (Tenancy.SHARED, True),
        (Tenancy.MESH_WIDE, False),
        (Tenancy.NO_CALLER, False),
    ],
)
def test_a_row_admits_tenants_only_by_a_tenancy_that_says_so(tenancy: Tenancy | None, admits: bool) -> None:
    row = Row({"edge": for_caller()}, deadline=1.0, idempotent=True, tenancy=tenancy)
    assert row.admits_tenants == admits
