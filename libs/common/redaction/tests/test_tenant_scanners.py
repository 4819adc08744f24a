"""Whose rules apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from libs.common.redaction.rules import RuleError
from libs.common.redaction.tenant_scanners import (
    MAX_TENANTS,
    TenantScanners,
    read_tenant_scanners,
    read_tenant_scanners_file,
)


def test_a_tenants_rules_are_its_own_and_others_have_the_default() -> None:
    book = read_tenant_scanners({"default": {"fields": ["badge"]}, "tenants": {"acme": {"fields": ["locker"]}}})
    value = {"badge": "b-1", "locker": "l-1", "password": "hunter2"}
    assert book.of("acme").value(value).value == {
        "badge": "b-1",
        "locker": "[redacted:field]",
        "password": "[redacted:password]",
    }
    assert book.of("other").value(value).value["badge"] == "[redacted:field]"
    assert TenantScanners().of("").value(value).value["password"] == "[redacted:password]"


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"more": {}},
        {"tenants": []},
        {"tenants": {"a": {"fields": 1}}},
        {"tenants": {str(n): {} for n in range(MAX_TENANTS + 1)}},
    ],
)
def test_a_book_that_cannot_be_used_is_refused(document: Any) -> None:
    with pytest.raises(RuleError):
        read_tenant_scanners(document)


@pytest.mark.parametrize(
    "content", [b"{", b'{"default":1}', b'{"default":{"patterns":[{"kind":"a","pattern":"a+","example":"aa"}]}}']
)
def test_a_file_that_cannot_be_used_is_refused_as_a_setting(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rules.json").write_bytes(content)
    with pytest.raises(ValueError):
        read_tenant_scanners_file(str(tmp_path / "rules.json"))
    with pytest.raises(ValueError):
        read_tenant_scanners_file(str(tmp_path / "absent.json"))


def test_a_good_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_bytes(b'{"tenants":{"acme":{"ip_addresses":true}}}')
    assert (
        read_tenant_scanners_file(str(tmp_path / "rules.json")).of("acme").text("from 192.0.2.1").value
        == "from [redacted:ip_address]"
    )
