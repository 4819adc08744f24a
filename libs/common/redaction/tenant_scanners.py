"""The scanner of each tenant, and the default one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse
from libs.common.redaction.rules import RuleError, read_rules
from libs.common.redaction.scanner import Scanner

MAX_TENANTS = 1000


class TenantScanners:
    """The scanners by tenant."""

    __slots__ = ("_default", "_tenants")

    def __init__(self, default: Scanner | None = None, tenants: Mapping[str, Scanner] | None = None) -> None:
        self._default, self._tenants = default or Scanner(), dict(tenants or {})

    def __str__(self) -> str:
        return f"rules of {len(self._tenants)} tenants"

    def of(self, tenant: str) -> Scanner:
        """Return the tenant's scanner, or the default one."""
        return self._tenants.get(tenant, self._default)


def read_tenant_scanners(document: Any) -> TenantScanners:
    """Return the scanners of a parsed document, `{"default": rules, "tenants": {name: rules}}`. Raises RuleError."""
    if not isinstance(document, dict) or not document.keys() <= {"default", "tenants"}:
        raise RuleError("the rules are an object with default and tenants")
    tenants = document.get("tenants", {})
    if not isinstance(tenants, dict) or len(tenants) > MAX_TENANTS:
        raise RuleError(f"tenants are an object with at most {MAX_TENANTS} names")
    default = Scanner(read_rules(document.get("default", {})))
    return TenantScanners(default, {name: Scanner(read_rules(rules)) for name, rules in tenants.items()})


def read_tenant_scanners_file(text: str) -> TenantScanners:
    """Read a JSON file of rules. Raises ValueError."""
    try:
        return read_tenant_scanners(parse(Path(text).read_bytes()))
    except OSError:
        raise ValueError("is not a file") from None
    except MeshError as error:
        raise ValueError(f"is not JSON: {error.message}") from None
