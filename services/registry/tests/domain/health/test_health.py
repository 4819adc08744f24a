"""What makes a version degraded or unavailable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from toolmesh.registry.v1 import http_endpoint_pb2 as hpb
from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from services.registry.convert.manifest import manifest_of
from services.registry.domain.health.health import Conditions, Dependencies, Health, assess, dependencies_of
from services.registry.domain.runners.announcement import Announcement, Circuit, CircuitState, RunnerSet
from services.registry.domain.runners.need import RunnerNeed
from services.registry.tests.manifests import reader

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLOSED, HALF, OPEN = CircuitState.CLOSED, CircuitState.HALF_OPEN, CircuitState.OPEN
MAIN, OTHER = "https://api.acme.example", "https://eu.acme.example:8443"
HTTP = Dependencies(RunnerNeed("http"), "acme", (MAIN,))
TWO = Dependencies(RunnerNeed("http"), "acme", (MAIN, OTHER))
SERVER = Dependencies(RunnerNeed("mcp"), "acme")


def runners(*circuits: Circuit) -> RunnerSet:
    able = Announcement("a", "1", frozenset({"http", "mcp"}), frozenset(), frozenset(), circuits=circuits)
    return RunnerSet((able,))


def conditions(silent: str = "", **circuits: CircuitState) -> Conditions:
    """`main`, `other` and `foreign` are circuits of services."""
    names = {"main": f"acme/{MAIN}", "other": f"acme/{OTHER}", "foreign": f"globex/{MAIN}", "prefix": f"acme.eu/{MAIN}"}
    return Conditions(runners(), {names[name]: state for name, state in circuits.items()}, frozenset({silent} - {""}))


@pytest.mark.parametrize(
    ("dependencies", "given", "health"),
    [
        (HTTP, conditions(), Health.HEALTHY),
        (HTTP, conditions(main=CLOSED), Health.HEALTHY),
        (HTTP, conditions(main=HALF), Health.DEGRADED),
        (HTTP, conditions(main=OPEN), Health.UNAVAILABLE),
        # Circuits belong to namespaces: no publisher makes the tools of another look broken.
        (HTTP, conditions(foreign=OPEN, prefix=OPEN), Health.HEALTHY),
        (HTTP, conditions(other=OPEN), Health.HEALTHY),
        # Another origin stands in.
        (TWO, conditions(main=OPEN), Health.DEGRADED),
        (TWO, conditions(main=OPEN, other=HALF), Health.DEGRADED),
        (TWO, conditions(main=OPEN, other=OPEN), Health.UNAVAILABLE),
        (SERVER, conditions(), Health.HEALTHY),
        (SERVER, conditions(silent="globex"), Health.HEALTHY),
        (SERVER, conditions(silent="acme"), Health.UNAVAILABLE),
        (SERVER, conditions(main=HALF), Health.DEGRADED),
        (SERVER, conditions(main=OPEN), Health.UNAVAILABLE),
        (SERVER, conditions(foreign=OPEN, prefix=OPEN), Health.HEALTHY),
        # What the document of an API says is not what the API does.
        (HTTP, conditions(silent="acme"), Health.HEALTHY),
        (Dependencies(RunnerNeed("python", "process", "kit"), "acme"), conditions(), Health.UNAVAILABLE),
        (HTTP, Conditions(), Health.UNAVAILABLE),
    ],
)
def test_the_health_of_a_version(dependencies: Dependencies, given: Conditions, health: Health) -> None:
    found, reason = assess(dependencies, given)
    assert found is health
    assert bool(reason) is (health is not Health.HEALTHY)
    # All who see the tool see the reason: it names no address.
    assert "https:" not in reason


def test_the_last_change_of_a_circuit_counts_whichever_executor_saw_it() -> None:
    later = NOW + timedelta(seconds=1)
    one = Announcement("a", "1", frozenset(), frozenset(), frozenset(), circuits=(Circuit("c", CLOSED, later),))
    two = Announcement("b", "1", frozenset(), frozenset(), frozenset(), circuits=(Circuit("c", OPEN, NOW),))
    for announced in ((one, two), (two, one)):
        assert RunnerSet(announced).circuits() == {"c": CLOSED}


@pytest.mark.parametrize(
    ("execution", "services"),
    [
        ({"url": "https://api.acme.example/v1/{id}"}, (MAIN,)),
        ({"url": "https://api.acme.example:443/v1", "failover_origins": [OTHER]}, (MAIN, OTHER)),
        # A service with a name of its own: only the first origin has it.
        ({"url": f"{MAIN}/v1", "failover_origins": [OTHER], "service": "orders"}, ("orders", OTHER)),
    ],
)
def test_the_services_of_an_http_tool_are_named_as_its_circuits_are(
    execution: dict[str, Any], services: tuple[str, ...]
) -> None:
    endpoint = hpb.HttpEndpoint(
        method=hpb.HTTP_METHOD_GET, url=execution["url"], failover_origins=execution.get("failover_origins", ())
    )
    profile = pb.ExecutionProfile(
        runner=pb.RUNNER_KIND_HTTP, http=endpoint, external_service=execution.get("service", "")
    )
    message = reader("acme.find")
    message.execution.CopyFrom(profile)
    assert dependencies_of(manifest_of(message)) == Dependencies(RunnerNeed("http"), "acme", services)
