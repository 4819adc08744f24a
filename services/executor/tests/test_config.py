"""The settings of the executor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from libs.common.runtime.settings import SettingsError, describe, load
from services.executor.config import Settings

PEERS = {
    "TOOLMESH_DATABASE_URL": "postgresql://executor:hunter2@db/toolmesh",
    "TOOLMESH_REDIS_URL": "redis://:hunter2@redis/0",
    "TOOLMESH_APPROVAL_ADDRESS": "approval:1",
    "TOOLMESH_REGISTRY_ADDRESS": "registry:1",
    "TOOLMESH_AUTHZ_ADDRESS": "authz:2",
    "TOOLMESH_AUDIT_ADDRESS": "audit:3",
}


@pytest.fixture
def given(process_environment: Callable[[str], dict[str, str]], sealing_keys: Path) -> dict[str, str]:
    """Everything that an executor needs, and nothing else."""
    return {**process_environment("executor"), **PEERS, "TOOLMESH_SEALING_KEYS": str(sealing_keys)}


def test_the_defaults_are_those_that_were_measured(given: dict[str, str]) -> None:
    settings = load(Settings, given)
    assert settings.audit_wait_seconds == 5.0
    assert str(settings.audit_address) == "audit:3"
    assert "hunter2" not in str(describe(settings))


@pytest.mark.parametrize("missing", [*sorted(PEERS), "TOOLMESH_SEALING_KEYS"])
def test_nothing_starts_without_its_peers(given: dict[str, str], missing: str) -> None:
    environment = {name: value for name, value in given.items() if name != missing}
    with pytest.raises(SettingsError) as caught:
        load(Settings, environment)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("wait", ["0", "601", "soon"])
def test_a_wait_out_of_bounds_is_refused(given: dict[str, str], wait: str) -> None:
    with pytest.raises(SettingsError):
        load(Settings, {**given, "TOOLMESH_AUDIT_WAIT_SECONDS": wait})


def test_large_results_and_the_cache_are_bounded_unless_told_otherwise(given: dict[str, str]) -> None:
    settings = load(Settings, given)
    assert (settings.result_ttl_seconds, settings.result_max_bytes, settings.result_cache_bytes) == (
        3600.0,
        64 << 20,
        16 << 20,
    )
    assert load(Settings, {**given, "TOOLMESH_RESULT_CACHE_BYTES": "0"}).result_cache_bytes == 0
    for name, wrong in (("TTL_SECONDS", "0"), ("MAX_BYTES", "0"), ("CACHE_BYTES", "-1")):
        with pytest.raises(SettingsError):
            load(Settings, {**given, f"TOOLMESH_RESULT_{name}": wrong})


def test_networks_that_tools_may_be_led_to_are_listed(given: dict[str, str]) -> None:
    assert load(Settings, given).egress_internal == ()
    settings = load(Settings, {**given, "TOOLMESH_EGRESS_INTERNAL": "10.1.0.0/16, fd00:7::/64"})
    assert [str(network) for network in settings.egress_internal] == ["10.1.0.0/16", "fd00:7::/64"]


@pytest.mark.parametrize(
    ("name", "value"), [("EGRESS_INTERNAL", "10.1.0.7/16"), ("EGRESS_INTERNAL", "a"), ("RUNSC", "/no/such")]
)
def test_what_cannot_be_used_is_refused_at_the_start(given: dict[str, str], name: str, value: str) -> None:
    with pytest.raises(SettingsError):
        load(Settings, {**given, f"TOOLMESH_{name}": value})
