"""What discovery shows a caller is what it may call: search, surface, schemas, lists and calls agree."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from toolmesh.registry.v1 import discovery_service_pb2 as pb
from toolmesh.registry.v1 import discovery_service_pb2_grpc as rpc

from tests.harness.mesh import Mesh, cli

ARGUMENTS: dict[str, dict[str, Any]] = {
    "core.echo": {"text": "a"},
    "core.arithmetic": {"expression": "1 + 1"},
    "core.clock_now": {},
}
TENANTS = 12
SEED = random.randrange(10**9)
# Conditions on a tool; the arguments of the calls here never meet the last one.
CONDITIONS = (
    "resource.trust >= 0",
    'resource.mutation_class == "read_only"',
    'resource.stage != "nowhere"',
    'context.environment != "nowhere"',
    'context.arguments.facts.contains("/never=met")',
)
RULE = """
@id("{name}") @effect("{effect}") @reason("A scenario.")
forbid (principal, action == Action::"{action}", resource)
when {{ principal.tenant == "{tenant}" && resource.tool_id == "{tool}" && {condition} }};
"""
EFFECTS = {"deny": "invoke", "needs_approval": "invoke_without_approval"}
Shown = dict[str, bool]
"""The tools that are shown to a caller, and whether a call needs an approval."""


def tenant(number: int) -> str:
    return f"agreement-{number}"


def random_rules(rng: random.Random) -> str:
    """Return for each tenant and tool no rule, or one of some effect under some condition."""
    rules = []
    for number in range(TENANTS):
        for tool in ARGUMENTS:
            effect = rng.choice(["", *EFFECTS])
            if effect:
                values = {"tenant": tenant(number), "tool": tool.removeprefix("core."), "effect": effect}
                name = f"{values['tenant']}-{values['tool'].replace('_', '-')}"
                condition = rng.choice(CONDITIONS)
                rules.append(RULE.format(name=name, action=EFFECTS[effect], condition=condition, **values))
    return "".join(rules)


@pytest.fixture
def rules(mesh: Mesh, tmp_path: Path) -> Iterator[None]:
    """A policy set with random rules for some tenants, active for the length of a test."""
    (tmp_path / "agreement.cedar").write_text(random_rules(random.Random(SEED)))
    put = json.loads(cli("policy", "put", str(tmp_path), "-m", "scenario", "--json", state=mesh.state).stdout)
    cli("policy", "activate", put["policy_set"]["name"].removeprefix("policySets/"), state=mesh.state)
    yield
    cli("policy", "rollback", state=mesh.state)


def called(mesh: Mesh, token: str) -> Shown:
    """Call every tool; return those that were not forbidden."""
    shown = {}
    for tool, arguments in ARGUMENTS.items():
        answer = mesh.rpc("tools.invoke", {"tool": tool, "arguments": arguments}, token=token).json()
        reason = answer.get("error", {}).get("data", {}).get("reason", "")
        assert reason in ("", "APPROVAL_REQUIRED", "PERMISSION_DENIED", "TOOL_NOT_IN_TOKEN"), answer
        if reason in ("", "APPROVAL_REQUIRED"):
            shown[tool] = bool(reason)
    return shown


def searched(discovery: Any, more: Any) -> Shown:
    found = discovery.SearchTools(pb.SearchToolsRequest(max_results=100), **more).tools
    return _shown({tool.tool: tool.usability == pb.TOOL_USABILITY_NEEDS_APPROVAL for tool in found})


def surfaced(discovery: Any, more: Any) -> Shown:
    request = pb.CompileSurfaceRequest(task="what time is it", token_budget=20_000)
    surface = discovery.CompileSurface(request, **more).surface
    marked = {tool.version.split("/versions/")[0]: tool.needs_approval for tool in surface.loaded_tools}
    marked |= {tool.name: tool.needs_approval for tool in surface.deferred_tools}
    assert set(marked) == set(surface.tool_refs)
    return _shown(marked)


def described(discovery: Any, more: Any) -> Shown:
    answer = discovery.GetToolSchemas(pb.GetToolSchemasRequest(tools=list(ARGUMENTS)), **more)
    return _shown({schema.version.split("/versions/")[0]: schema.needs_approval for schema in answer.schemas})


def listed(mesh: Mesh, token: str) -> set[str]:
    answer = mesh.rpc("tools.list", {"usable_only": True}, token=token).json()["result"]["tools"]
    return set(_shown({each["tool"]["name"]: False for each in answer}))


def _shown(tools: dict[str, bool]) -> Shown:
    """Leave out tools that other tests have registered."""
    named = {name.removeprefix("tools/"): needs_approval for name, needs_approval in tools.items()}
    return {name: needs_approval for name, needs_approval in named.items() if name in ARGUMENTS}


@pytest.mark.usefixtures("rules")
def test_discovery_shows_exactly_what_can_be_called(mesh: Mesh) -> None:
    rng, outcomes = random.Random(SEED), set()
    with mesh.edge_channel() as channel:
        discovery = rpc.DiscoveryServiceStub(channel)
        for number in range(TENANTS):
            granted = rng.sample(sorted(ARGUMENTS), rng.randint(1, 3))
            token = mesh.token(tools=",".join(granted), tenant=tenant(number), scopes="tools:read,tools:call")
            more = {"metadata": [("authorization", f"Bearer {token}")], "timeout": 60}
            truth = called(mesh, token)
            for shown in (searched(discovery, more), surfaced(discovery, more), described(discovery, more)):
                assert shown == truth, (SEED, number, granted)
            assert listed(mesh, token) == set(truth), (SEED, number, granted)
            outcomes |= {(tool in granted, truth.get(tool)) for tool in ARGUMENTS}
    # The rules and tokens are random, and each outcome is there.
    assert outcomes == {(True, False), (True, True), (True, None), (False, None)}, SEED
