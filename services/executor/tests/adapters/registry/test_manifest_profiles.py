"""Sandbox and scheduling profiles of manifests: defaults are minimal, and the access tier limits the rest."""

from __future__ import annotations

from typing import Any

import pytest
from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from services.executor.adapters.registry.manifest_profiles import confinement_of, placement_of, rendering_of
from services.executor.domain.tool import Access, Confinement, Limit, Placement, Rendering, SiblingFailure


def manifest_with(**execution: Any) -> pb.ToolManifest:
    manifest = pb.ToolManifest(mutation_class=pb.MUTATION_CLASS_WRITE_REVERSIBLE)
    manifest.execution.CopyFrom(pb.ExecutionProfile(**execution))
    manifest.permission.required_permissions.extend(
        ["filesystem:read:docs", "filesystem:write:out", "net:any", "filesystem:read:../x"]
    )
    manifest.execution.network_policy.allowed_domains.extend(["API.example.com"])
    return manifest


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
    confinement = confinement_of(manifest_with(access_tier=tier))
    assert (confinement.reads, confinement.writes, confinement.hosts) == (reads, writes, hosts)


def test_a_read_only_tool_gets_no_writable_volume() -> None:
    manifest = manifest_with(access_tier=pb.ACCESS_TIER_FILES)
    manifest.mutation_class = pb.MUTATION_CLASS_READ_ONLY
    confinement = confinement_of(manifest)
    assert (confinement.reads, confinement.writes) == (("docs", "out"), ())


def test_workers_are_shared_by_subjects_only_if_the_manifest_says_so() -> None:
    assert not confinement_of(manifest_with()).shares_workers
    assert confinement_of(manifest_with(shares_workers=True)).shares_workers


def test_denied_egress_stays_denied() -> None:
    manifest = manifest_with(access_tier=pb.ACCESS_TIER_NETWORK)
    manifest.execution.network_policy.deny_all_egress = True
    assert confinement_of(manifest).hosts == ()


def test_quantities_are_read_as_kubernetes_writes_them() -> None:
    limits = pb.ResourceLimits(cpu="250m", memory="64Mi", ephemeral_storage="2Gi", max_processes=7)
    confinement = confinement_of(manifest_with(resource_limits=limits))
    assert (confinement.millicpus, confinement.memory_bytes, confinement.scratch_bytes, confinement.processes) == (
        250,
        64 << 20,
        2 << 30,
        7,
    )
    assert confinement_of(manifest_with(resource_limits=pb.ResourceLimits(cpu="2"))).millicpus == 2000


def test_a_limit_is_declared_only_by_a_manifest_that_sets_it() -> None:
    assert confinement_of(manifest_with()).declared == frozenset()
    limits = pb.ResourceLimits(cpu="1", ephemeral_storage="2Gi", max_processes=7)
    declared = confinement_of(manifest_with(resource_limits=limits)).declared
    assert declared == {Limit.CPU_SHARE, Limit.PROCESSES}
    assert confinement_of(manifest_with(resource_limits=pb.ResourceLimits(memory="1Mi"))).declared == {Limit.MEMORY}


def test_scheduling_is_read_as_declared() -> None:
    manifest = manifest_with(max_concurrency=3, external_service="crm")
    manifest.priority = 8
    manifest.interface.safety.concurrency_safe = True
    manifest.scheduling.sibling_failure = pb.SIBLING_FAILURE_POLICY_CANCEL_SIBLINGS
    assert placement_of(manifest) == Placement(8, True, 3, "crm", SiblingFailure.CANCEL_SIBLINGS)
