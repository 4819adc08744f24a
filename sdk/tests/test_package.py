"""The package as a whole: its public names, and the cost of importing it."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
import toolmesh_sdk

PUBLIC_MODULES = {
    "client": {"Client", "ProofKey", "RecordFilters", "RetryPolicy", "Tls"},
    "aio": {"AsyncClient"},
    "discovery": {"FoundTool", "LoadedSchemas", "SearchResult", "Surface", "ToolSchema", "ToolSet"},
    "errors": {"ToolmeshError", "Violation"},
    "result": {"Result", "ArgumentChange", "Compensation", "Cost", "Deprecation", "Effect", "StoredResult"},
    "group": {"GroupCall", "Outcome"},
    "preview": {"Preview", "Precondition"},
    "usage": {"UsageReader"},
    "manifests": {"manifest_from"},
    "keys": {"canonical_json", "derive_idempotency_key"},
    "token_request": {"Bounds"},
}


def test_every_public_name_can_be_imported() -> None:
    assert {"Client", "AsyncClient", "Tls", "Result", "Reason", "RetryPolicy"} <= set(toolmesh_sdk.__all__)
    assert all(getattr(toolmesh_sdk, name) is not None for name in toolmesh_sdk.__all__)


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_public_modules_export_their_names(module: str) -> None:
    loaded = importlib.import_module(f"toolmesh_sdk.{module}")
    assert PUBLIC_MODULES[module] <= set(vars(loaded))
    assert set(getattr(loaded, "__all__", ())) <= set(vars(loaded))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        toolmesh_sdk.nothing  # noqa: B018


@pytest.mark.parametrize("module", ["toolmesh_sdk", "toolmesh_sdk.cli.main"])
def test_importing_does_not_load_grpc(module: str) -> None:
    code = f"import sys, {module}; sys.exit('grpc' in sys.modules or 'rich.console' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
