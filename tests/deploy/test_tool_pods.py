"""Pods of tools, as a cluster would see them: who may make them, and what they reach."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from libs.common.runtime.settings import variables
from services.executor.adapters.sandbox.pods.pod_api import LeaseState
from services.executor.adapters.sandbox.pods.pod_manifest import PodConfig, describe_pod
from services.executor.adapters.sandbox.port import Plan
from services.executor.config import Settings
from tests.deploy.test_manifests import model_of, of_kind, schema_problems
from tests.harness.kustomize import Manifest, render

TOOLS = "toolmesh-tools"
OVERLAYS = Path(__file__).parents[2] / "deploy" / "k8s" / "overlays"


@pytest.fixture(scope="module")
def objects() -> list[Manifest]:
    return render(OVERLAYS / "local-pods")


def executor(objects: list[Manifest]) -> Manifest:
    [found] = [each for each in of_kind(objects, "Deployment") if each["metadata"]["name"] == "executor"]
    return dict(found["spec"]["template"])


def settings(objects: list[Manifest]) -> dict[str, str]:
    [container] = executor(objects)["spec"]["containers"]
    return {item["name"]: item.get("value", "") for item in container["env"]}


def below_tools(objects: list[Manifest], kind: str) -> list[Manifest]:
    return [each for each in of_kind(objects, kind) if each["metadata"].get("namespace") == TOOLS]


def test_every_object_fits_the_api(objects: list[Manifest]) -> None:
    found = [each for each in objects if each["metadata"].get("namespace", each["metadata"]["name"]) == TOOLS]
    assert len(found) == 6
    for each in [*found, *of_kind(objects, "Deployment")]:
        assert list(schema_problems(each, model_of(each["kind"], each["apiVersion"]), each["kind"])) == []


def test_a_cluster_without_pods_of_tools_grants_nothing_for_them() -> None:
    for name in ("local", "production", "ha"):
        rendered = render(OVERLAYS / name)
        assert [each for each in rendered if TOOLS in str(each)] == []
        assert settings(rendered).keys() & {"TOOLMESH_POD_NAMESPACE", "TOOLMESH_POD_IMAGE"} == set()


def test_the_executor_may_make_pods_in_their_namespace_and_nothing_else(objects: list[Manifest]) -> None:
    bound = [
        (each["kind"], each["metadata"]["namespace"])
        for each in of_kind(objects, "RoleBinding", "ClusterRoleBinding")
        if any(subject["name"] == "executor" for subject in each["subjects"])
    ]
    assert bound == [("RoleBinding", TOOLS)]
    [role] = below_tools(objects, "Role")
    granted = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
    assert granted == {
        "pods": {"create", "get", "list", "delete"},
        "pods/exec": {"get", "create"},
        "leases": {"create", "get", "list", "patch", "delete"},
        "sandboxclaims": {"create", "get", "list", "delete"},
        "sandboxtemplates": {"create"},
        "sandboxwarmpools": {"create", "get"},
    }


def test_pods_of_tools_are_restricted_and_reach_nothing(objects: list[Manifest]) -> None:
    [namespace] = [each for each in of_kind(objects, "Namespace") if each["metadata"]["name"] == TOOLS]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    [policy] = below_tools(objects, "NetworkPolicy")
    assert policy["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert len(below_tools(objects, "ResourceQuota")) == len(below_tools(objects, "LimitRange")) == 1


def test_the_executor_has_a_short_token_and_reaches_the_api_server(objects: list[Manifest]) -> None:
    pod = executor(objects)
    assert not pod["spec"]["automountServiceAccountToken"]
    [volume] = [each for each in pod["spec"]["volumes"] if "projected" in each]
    [token] = [source for source in volume["projected"]["sources"] if "serviceAccountToken" in source]
    assert token["serviceAccountToken"]["expirationSeconds"] == 3600
    [mount] = [each for each in pod["spec"]["containers"][0]["volumeMounts"] if each["name"] == volume["name"]]
    assert mount["readOnly"]
    policies = [
        each for each in of_kind(objects, "NetworkPolicy") if each["metadata"]["namespace"] == "toolmesh-executor"
    ]
    reaching = [each for each in policies if each["metadata"]["name"] == "apiserver-clients"]
    selected = reaching[0]["spec"]["podSelector"]["matchLabels"]
    assert selected.items() <= pod["metadata"]["labels"].items()


def test_the_executors_settings_name_the_namespace_and_its_own_image(objects: list[Manifest], repository: Path) -> None:
    version = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"]
    named = {name: value for name, value in settings(objects).items() if name.startswith("TOOLMESH_POD_")}
    assert named == {
        "TOOLMESH_POD_NAMESPACE": TOOLS,
        "TOOLMESH_POD_IMAGE": f"registry.local/toolmesh/executor:{version}",
    }
    assert named.keys() <= variables(Settings)


@pytest.mark.parametrize("runtime", ["", "gvisor"])
def test_the_pod_of_a_tool_fits_the_api_and_the_limits_of_its_namespace(objects: list[Manifest], runtime: str) -> None:
    config, owner = PodConfig(TOOLS, "image:1", "/usr/bin/python3", runtime), LeaseState("executor", "uid", "")
    plan = Plan(("/bin/true",), egress_socket="/x")
    pod: dict[str, Any] = describe_pod(config, "tool-1", "executor", owner, plan, ["/packs/one"], 1 << 20)
    assert list(schema_problems(pod, "V1Pod", "pod")) == []
    [limits] = below_tools(objects, "LimitRange")
    [most] = [each["max"] for each in limits["spec"]["limits"]]
    for container in pod["spec"]["containers"]:
        assert container["resources"]["limits"].keys() == most.keys()
