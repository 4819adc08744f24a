"""The manifests as a cluster would see them: schemas, Pod Security, arrows between services, settings."""

from __future__ import annotations

import datetime
import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from deploy.images.catalogue import IMAGES, SERVICES
from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR
from libs.common.rpc.policy import ANY_PEER
from libs.common.runtime.settings import variables
from libs.common.sql.migrate import MigrationSettings
from libs.common.sql.wait import WaitSettings
from localmesh.deploy.init_certs import dns_names
from localmesh.deploy.layout import DATABASE_MOUNT, OWNER_MOUNT, REDIS_MOUNT, Namespaces
from localmesh.state.pki import IDENTITIES
from tests.harness.kustomize import Manifest, render

OVERLAYS = ("local", "production", "ha")
OUTSIDE = {EDGE, OPERATOR, ORCHESTRATOR}
PEER = "toolmesh.io/peer"
PROFILES = "DaemonSet seccomp-profiles"
NAMESPACES = Namespaces()


@pytest.fixture(params=OVERLAYS, scope="module")
def objects(request: pytest.FixtureRequest) -> list[Manifest]:
    return render(Path(__file__).parents[2] / "deploy" / "k8s" / "overlays" / str(request.param))


def of_kind(objects: list[Manifest], *kinds: str) -> list[Manifest]:
    return [each for each in objects if each["kind"] in kinds]


def pods(objects: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    for each in of_kind(objects, "Deployment", "StatefulSet", "DaemonSet", "Job"):
        yield f"{each['kind']} {each['metadata']['name']}", each["spec"]["template"]


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def model_of(kind: str, version: str) -> str:
    group, _, name = version.rpartition("/")
    return f"V{name[1:]}{kind}" if name in ("v1", "v2") else f"{group}{kind}"


def schema_problems(value: Any, kind: str, place: str) -> Iterator[str]:
    """Yield fields that the API does not know, values of another type, and required fields that are missing."""
    if listed := re.fullmatch(r"[Ll]ist\[(.*)\]", kind):
        if not isinstance(value, list):
            yield f"{place} is no list"
            return
        for number, item in enumerate(value):
            yield from schema_problems(item, listed[1], f"{place}[{number}]")
    elif mapped := re.fullmatch(r"[Dd]ict[\[(]str, (.*)[\])]", kind):
        for key, item in value.items():
            yield from schema_problems(item, mapped[1], f"{place}.{key}")
    elif kind in ("str", "int", "bool", "float"):
        if type(value).__name__ != kind:
            yield f"{place} is {value!r}, not of {kind}"
    elif kind not in ("object", "datetime"):
        yield from _model_problems(value, getattr(client, kind), place)


def _model_problems(value: Any, model: Any, place: str) -> Iterator[str]:
    fields = {json: name for name, json in model.attribute_map.items()}
    for key in value.keys() - fields.keys():
        yield f"{place}.{key} is unknown"
    for key in value.keys() & fields.keys():
        yield from schema_problems(value[key], model.openapi_types[fields[key]], f"{place}.{key}")
    try:
        model(**{fields[key]: value[key] for key in value.keys() & fields.keys()})
    except ValueError as error:
        yield f"{place}: {error}"


def test_every_object_fits_the_api(objects: list[Manifest]) -> None:
    problems: list[str] = []
    for each in objects:
        place = f"{each['kind']}/{each['metadata']['name']}"
        problems += schema_problems(each, model_of(each["kind"], each["apiVersion"]), place)
    assert problems == []


@pytest.mark.parametrize(
    ("kind", "manifest"),
    [
        ("V1Pod", {"spec": {"containers": [{"name": "one", "imagePullPolice": "Never"}]}}),
        ("V1Pod", {"spec": {}}),
        ("V1Pod", {"spec": {"containers": [{"name": "one", "ports": [{"containerPort": "80"}]}]}}),
    ],
)
def test_a_field_that_the_api_does_not_accept_is_seen(kind: str, manifest: Manifest) -> None:
    assert list(schema_problems(manifest, kind, "it")) != []


def test_images_are_ours_and_of_this_version(objects: list[Manifest], repository: Path) -> None:
    version = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"]
    known = {f"{image.reference}:{version}" for image in IMAGES}
    assert {item["image"] for _, pod in pods(objects) for item in containers(pod)} <= known
    jobs = [each["metadata"]["name"] for each in of_kind(objects, "Job")]
    assert [name for name in jobs if not name.endswith(f"-{version.replace('.', '-')}")] == []


def test_every_container_has_requests_and_limits_and_every_server_probes(objects: list[Manifest]) -> None:
    without = []
    for place, pod in pods(objects):
        for item in containers(pod):
            if any(item["resources"][kind].keys() != {"cpu", "memory"} for kind in ("requests", "limits")):
                without.append(f"{place} {item['name']}: resources")
        probes = {"startupProbe", "livenessProbe", "readinessProbe"}
        servers = [] if place.startswith(("Job", "DaemonSet")) else pod["spec"]["containers"]
        without += [f"{place} {item['name']}: probes" for item in servers if not item.keys() >= probes]
    assert without == []


def test_pods_are_restricted_but_for_what_sandboxes_need(objects: list[Manifest]) -> None:
    problems = []
    for place, pod in pods(objects):
        spec, executor = pod["spec"], place == "Deployment executor"
        if place == PROFILES:
            continue
        general = spec["securityContext"]
        if not general["runAsNonRoot"] or general["seccompProfile"] != {"type": "RuntimeDefault"}:
            problems.append(f"{place}: user or profile")
        if spec.keys() & {"hostNetwork", "hostPID", "hostIPC"} or ("hostUsers" in spec) != executor:
            problems.append(f"{place}: namespaces of the host")
        if any(volume.keys() & {"hostPath"} for volume in spec.get("volumes", ())):
            problems.append(f"{place}: folder of the host")
        for item in containers(pod):
            own = dict(item["securityContext"])
            sandboxes = (own.pop("procMount", None), own.pop("seccompProfile", {}).get("type"))
            if own != {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            } or sandboxes != (("Unmasked", "Localhost") if executor and item["name"] == "service" else (None, None)):
                problems.append(f"{place} {item['name']}: security context")
    assert problems == []


def test_what_writes_on_nodes_has_one_folder_and_nothing_else(objects: list[Manifest], repository: Path) -> None:
    [(_, pod)] = [item for item in pods(objects) if item[0] == PROFILES]
    spec = pod["spec"]
    assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"}
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert [volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume] == [
        "/var/lib/kubelet/seccomp"
    ]
    for item in containers(pod):
        assert item["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    profiles = next(each for each in of_kind(objects, "ConfigMap") if each["metadata"]["namespace"] == "toolmesh-nodes")
    rendered = {path.name: path.read_text() for path in (repository / "deploy" / "seccomp").glob("toolmesh-*.json")}
    assert profiles["data"] == rendered


def test_namespaces_enforce_pod_security(objects: list[Manifest]) -> None:
    label = "pod-security.kubernetes.io/enforce"
    found = {each["metadata"]["name"]: each["metadata"]["labels"][label] for each in of_kind(objects, "Namespace")}
    assert found == {"toolmesh": "restricted", "toolmesh-executor": "baseline", "toolmesh-nodes": "privileged"}


def test_the_executors_profile_is_one_that_the_tree_has(objects: list[Manifest], repository: Path) -> None:
    pod = dict(pods(objects))["Deployment executor"]
    profile = pod["spec"]["containers"][0]["securityContext"]["seccompProfile"]["localhostProfile"]
    assert (repository / "deploy" / "seccomp" / profile).is_file()


def test_only_the_job_that_writes_secrets_has_a_token_of_the_api(objects: list[Manifest]) -> None:
    tokens = {place for place, pod in pods(objects) if pod["spec"].get("automountServiceAccountToken", True)}
    assert {place.rstrip("0123456789-") for place in tokens} <= {"Job init"}


def addresses(service: str) -> set[str]:
    """Return the services whose address a service has."""
    fields = importlib.import_module(f"services.{service}.config").Settings.model_fields
    return {name.removesuffix("_address") for name in fields if name.endswith("_address")} & set(SERVICES)


def permitted(service: str) -> set[str]:
    """Return the peers that a service's policy admits."""
    policy = importlib.import_module(f"services.{service}.policy")
    if service == "gateway":
        return set(policy.PEERS)
    peers = {peer for row in policy.POLICY.values() for peer in row.allow}
    return OUTSIDE | set(SERVICES) if ANY_PEER in peers else peers


def callers(service: str) -> set[str]:
    return {peer for peer in permitted(service) if peer in OUTSIDE or service in addresses(peer)}


def policy_of(objects: list[Manifest], name: str) -> Manifest:
    return next(each for each in of_kind(objects, "NetworkPolicy") if each["metadata"]["name"] == name)


def peers_in(entries: list[Manifest], direction: str, port: int) -> set[str]:
    found = set()
    for entry in entries:
        if {item["port"] for item in entry["ports"]} == {port}:
            for peer in entry[direction]:
                name = peer["podSelector"]["matchLabels"][PEER]
                namespace = peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
                assert namespace == NAMESPACES.of(name)
                found.add(name)
    return found


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_reached_by_the_peers_of_its_policy_and_reaches_whose_address_it_has(
    objects: list[Manifest], service: str
) -> None:
    policy = policy_of(objects, service)
    assert policy["spec"]["podSelector"]["matchLabels"] == {PEER: service}
    assert policy["metadata"]["namespace"] == NAMESPACES.of(service)
    assert peers_in(policy["spec"]["ingress"], "from", 8443) == callers(service)
    assert peers_in(policy["spec"]["egress"], "to", 8443) == addresses(service)


def test_the_edge_reaches_the_services_whose_policy_admits_it(objects: list[Manifest]) -> None:
    egress = policy_of(objects, "envoy")["spec"]["egress"]
    assert peers_in(egress, "to", 8443) == {service for service in SERVICES if EDGE in permitted(service)}


def test_every_namespace_denies_by_default(objects: list[Manifest]) -> None:
    denying = {
        each["metadata"]["namespace"]
        for each in of_kind(objects, "NetworkPolicy")
        if each["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    }
    assert denying == {"toolmesh", "toolmesh-executor", "toolmesh-nodes"}


def settings_of(service: str, container: str) -> set[str]:
    if container == "wait-for-schema":
        return variables(WaitSettings)
    if container == "migrations":
        return variables(MigrationSettings)
    return variables(importlib.import_module(f"services.{service}.config").Settings)


def test_pods_set_only_settings_that_their_program_has(objects: list[Manifest]) -> None:
    maps = {
        (each["metadata"]["namespace"], each["metadata"]["name"]): each["data"]
        for each in of_kind(objects, "ConfigMap")
    }
    unknown = []
    for each in of_kind(objects, "Deployment", "Job"):
        service = re.sub(r"-migrations.*", "", each["metadata"]["name"])
        for item in containers(each["spec"]["template"]) if service in SERVICES else ():
            names = {variable["name"] for variable in item.get("env", ())}
            for source in item.get("envFrom", ()):
                names |= maps[each["metadata"]["namespace"], source["configMapRef"]["name"]].keys()
            ours = {name for name in names if name.startswith("TOOLMESH_")}
            unknown += [f"{service} {name}" for name in ours - settings_of(service, item["name"])]
    assert unknown == []


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_an_address_for_each_of_its_peers(objects: list[Manifest], service: str) -> None:
    settings = next(
        each["data"]
        for each in of_kind(objects, "ConfigMap")
        if each["metadata"]["name"].startswith(f"{service}-settings")
    )
    found = {name: value for name, value in settings.items() if name.endswith("_ADDRESS")}
    assert found == {f"TOOLMESH_{peer.upper()}_ADDRESS": f"{NAMESPACES.host(peer)}:8443" for peer in addresses(service)}


@pytest.mark.parametrize("service", SERVICES)
def test_no_service_mounts_the_credentials_of_a_role_that_owns_tables(objects: list[Manifest], service: str) -> None:
    pod = dict(pods(objects))[f"Deployment {service}"]
    secrets = {volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume}
    assert f"{service}-tls" in secrets
    assert [name for name in secrets if name.endswith("-owner") or name in ("mesh-ca", "postgres-admin")] == []


def test_every_pod_finds_a_url_where_its_secret_says_its_authority_is(objects: list[Manifest]) -> None:
    mounts = {
        "TOOLMESH_DATABASE_URL_FILE": DATABASE_MOUNT,
        "TOOLMESH_MIGRATION_DATABASE_URL_FILE": OWNER_MOUNT,
        "TOOLMESH_REDIS_URL_FILE": REDIS_MOUNT,
    }
    found = {
        (variable["name"], variable["value"])
        for _, pod in pods(objects)
        for container in containers(pod)
        for variable in container.get("env", ())
        if variable["name"] in mounts
    }
    assert found == {(name, f"{mount}/url") for name, mount in mounts.items()}


def test_an_overlay_for_high_availability_has_two_of_each(repository: Path) -> None:
    found = of_kind(render(repository / "deploy" / "k8s" / "overlays" / "ha"), "HorizontalPodAutoscaler")
    assert {each["metadata"]["name"]: each["spec"]["minReplicas"] for each in found} == dict.fromkeys(
        (*SERVICES, "envoy"), 2
    )


@pytest.mark.parametrize("service", [*SERVICES, "envoy"])
def test_a_service_can_be_deployed_alone(repository: Path, service: str) -> None:
    kinds = {each["kind"] for each in render(repository / "deploy" / "k8s" / service)}
    assert kinds >= {
        *("Deployment", "Service", "ServiceAccount", "ConfigMap", "NetworkPolicy"),
        *("PodDisruptionBudget", "HorizontalPodAutoscaler"),
    }


def test_cert_manager_issues_the_same_names_as_our_own_program(repository: Path) -> None:
    text = (repository / "deploy" / "k8s" / "components" / "cert-manager" / "certificates.yaml").read_text()
    found = {each["metadata"]["name"]: each for each in yaml.safe_load_all(text)}
    assert found.keys() == set(IDENTITIES)
    for name, each in found.items():
        assert each["metadata"]["namespace"] == NAMESPACES.of(name)
        assert each["spec"]["uris"] == [f"spiffe://toolmesh.local/{name}"]
        assert set(each["spec"]["dnsNames"]) == set(dns_names(name, NAMESPACES)) - {"localhost"}


def test_a_pod_has_longer_to_end_than_its_service_takes(objects: list[Manifest]) -> None:
    grace = {
        place: pod["spec"]["terminationGracePeriodSeconds"]
        for place, pod in pods(objects)
        if place.removeprefix("Deployment ") in SERVICES
    }
    assert min(grace.values()) > datetime.timedelta(seconds=5 + 20 + 2).total_seconds()


def test_every_service_of_the_overlay_for_one_node_knows_where_callers_reach_it(repository: Path) -> None:
    objects = render(repository / "deploy" / "k8s" / "overlays" / "local")
    settings = [each["data"] for each in of_kind(objects, "ConfigMap") if "TOOLMESH_ENVIRONMENT" in each["data"]]
    origins = {each.get("TOOLMESH_PUBLIC_ORIGINS") for each in settings}
    assert len(settings) == len(SERVICES)
    assert len(origins) == 1
    assert "https://edge.toolmesh:8443" in str(origins)
