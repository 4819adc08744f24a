"""Sandbox and scheduling profiles of manifests: defaults are minimal, and the access tier limits the rest."""

from __future__ import annotations

from typing import Any

import pytest
from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from services.executor.adapters.registry.manifest_profiles import confinement_of, placement_of, rendering_of
from services.executor.domain.tool import Access, Confinement, Placement, Rendering, SiblingFailure


def manifest(**execution: Any) -> pb.ToolManifest:
    made = pb.ToolManifest(mutation_class=pb.MUTATION_CLASS_WRITE_REVERSIBLE)
    made.execution.CopyFrom(pb.ExecutionProfile(**execution))
    made.permission.required_permissions.extend(
        ["filesystem:read:docs", "filesystem:write:out", "net:any", "filesystem:read:../x"]
    )
    made.execution.network_policy.allowed_domains.extend(["API.example.com"])
    return made


def test_defaults_are_minimal() -> None:
    assert confinement_of(pb.ToolManifest()) == Confinement(tier="kernel", access=Access.PURE)
    assert placement_of(pb.ToolManifest()) == Placement()
    assert rendering_of(pb.ToolManifest()) == Rendering()


@pytest.mark.parametrize(
    ("tier", "reads", "writes", "hosts"),
    [
        (pb.ACCESS_TIER_UNSPECIFIED, (), (), ()),
        (pb.ACCESS_TIER_PURE, (), (), ()),
        (pb.ACCESS_TIER_FILES, ("docs", "out"), ("out",), ()),
        (pb.ACCESS_TIER_NETWORK, ("docs", "out"), ("out",), ("api.example.com",)),
        (pb.ACCESS_TIER_SUPERVISED, ("docs", "out"), ("out",), ("api.example.com",)),
    ],
)
def test_each_access_tier_allows_its_resources(tier: Any, reads: Any, writes: Any, hosts: Any) -> None:
    found = confinement_of(manifest(access_tier=tier))
    assert (found.reads, found.writes, found.hosts) == (reads, writes, hosts)


def test_a_read_only_tool_gets_no_writable_volume() -> None:
    made = manifest(access_tier=pb.ACCESS_TIER_FILES)
    made.mutation_class = pb.MUTATION_CLASS_READ_ONLY
    found = confinement_of(made)
    assert (found.reads, found.writes) == (("docs", "out"), ())


def test_denied_egress_stays_denied() -> None:
    made = manifest(access_tier=pb.ACCESS_TIER_NETWORK)
    made.execution.network_policy.deny_all_egress = True
    assert confinement_of(made).hosts == ()


def test_quantities_are_read_as_kubernetes_writes_them() -> None:
    limits = pb.ResourceLimits(cpu="250m", memory="64Mi", ephemeral_storage="2Gi", max_processes=7)
    found = confinement_of(manifest(resource_limits=limits))
    assert (found.millicpus, found.memory_bytes, found.scratch_bytes, found.processes) == (250, 64 << 20, 2 << 30, 7)
    assert confinement_of(manifest(resource_limits=pb.ResourceLimits(cpu="2"))).millicpus == 2000


def test_scheduling_is_read_as_declared() -> None:
    made = manifest(max_concurrency=3, external_service="crm")
    made.priority = 8
    made.interface.safety.concurrency_safe = True
    made.scheduling.sibling_failure = pb.SIBLING_FAILURE_POLICY_CANCEL_SIBLINGS
    assert placement_of(made) == Placement(8, True, 3, "crm", SiblingFailure.CANCEL_SIBLINGS)
