"""The mesh on a running cluster, as an operator and a caller reach it: by kubectl and the command line."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolmesh_sdk import Client

from deploy.cluster.node.entry import enter_node
from tests.cluster.running_cluster import REPOSITORY, RunningCluster
from tests.cluster.waiting import wait_until

SERVICES = ("gateway", "registry", "authz", "executor", "approval", "audit")
# Called services before their callers: the order of an upgrade in docs/deploy.md.
UPGRADE_ORDER = ("audit", "authz", "registry", "approval", "executor", "gateway", "envoy")
SCOPES = "tools:call,tools:read,tools:register,audit:read"
_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


def namespace_of(service: str) -> str:
    """Returns the namespace of a service's pods."""
    return "toolmesh-executor" if service == "executor" else "toolmesh"


@dataclass(frozen=True)
class Load:
    """What became of the calls of a steady load, by their keys."""

    invocations: dict[str, str] = field(default_factory=dict)
    uncertain: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class RunningLoad:
    """A steady load that goes on."""

    def __init__(self, output: Path) -> None:
        self._output = output

    def read(self) -> Load:
        """Returns the calls that have ended."""
        return Load(**json.loads(self._output.read_text())) if self._output.exists() else Load()

    def wait_for_calls(self, more: int = 20) -> None:
        """Waits until further calls have been answered, so that the load is known to go on."""
        goal = len(self.read().invocations) + more
        wait_until(lambda: len(self.read().invocations) >= goal or self.read().failures != [])

    def require_no_failure(self, *context: str) -> None:
        """Fails if a call has failed or two calls got one invocation."""
        load = self.read()
        assert load.failures == [], (context, load.failures[:5])
        assert len(set(load.invocations.values())) == len(load.invocations)


class DeployedMesh:
    """The mesh of a cluster."""

    def __init__(self, cluster: RunningCluster, folder: Path) -> None:
        self.cluster, self._folder = cluster, folder
        self._write_operator()

    def kubectl(self, service: str, *words: str) -> str:
        """Runs kubectl in the namespace of a service and returns its output."""
        done = self.cluster.kubectl(f"--namespace={namespace_of(service)}", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pods(self, service: str) -> list[dict[str, Any]]:
        """Returns the pods of a service that are not ending."""
        selector = f"--selector=app.kubernetes.io/name={service}"
        found = self.cluster.get(f"--namespace={namespace_of(service)}", "pods", selector)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def pod_names(self, service: str) -> set[str]:
        """Returns the pods of a service, those that are ending included."""
        selector = f"--selector=app.kubernetes.io/name={service}"
        found = self.cluster.get(f"--namespace={namespace_of(service)}", "pods", selector)["items"]
        return {each["metadata"]["name"] for each in found}

    def replace_pods(self, service: str, *words: str) -> None:
        """Runs a kubectl command that replaces the pods of a service, and waits until no earlier pod is left."""
        old = self.pod_names(service)
        self.kubectl(service, *words)
        self.wait_for(service)
        wait_until(lambda: old.isdisjoint(self.pod_names(service)))

    def evict(self, service: str, pod: str) -> bool:
        """Evicts a pod. Returns False if its disruption budget forbids that now."""
        metadata = {"name": pod, "namespace": namespace_of(service)}
        request = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
        path = f"/api/v1/namespaces/{namespace_of(service)}/pods/{pod}/eviction"
        return self.cluster.kubectl("create", f"--raw={path}", "--filename=-", given=request).returncode == 0

    def wait_for(self, *services: str) -> None:
        """Waits until the deployments of services are complete."""
        for service in services:
            self.kubectl(service, "rollout", "status", f"deployment/{service}", "--timeout=600s")

    @contextmanager
    def tool_pods(self, **settings: str) -> Iterator[None]:
        """Lets the executor run tools as pods while the block runs, and takes all of it back."""
        self._apply_overlay("local-pods")
        try:
            self._set_executor(*(f"{name}={value}" for name, value in settings.items()))
            yield
        finally:
            self._set_executor(*(f"{name}-" for name in settings))
            self._apply_overlay("local")
            self.kubectl("executor", "delete", "--ignore-not-found", "networkpolicy/apiserver-clients")
            self.cluster.kubectl("delete", "--ignore-not-found", "namespace/toolmesh-tools")

    def _set_executor(self, *words: str) -> None:
        if words:
            self.kubectl("executor", "set", "env", "deployment/executor", "--containers=service", *words)
            self.wait_for("executor")

    def _apply_overlay(self, name: str) -> None:
        done = self.cluster.kubectl("apply", f"--kustomize={REPOSITORY / 'deploy' / 'k8s' / 'overlays' / name}")
        assert done.returncode == 0, done.stderr
        self.wait_for("executor")

    @contextmanager
    def forward(self, target: str, port: int) -> Iterator[int]:
        """Forwards a port of the machine to a pod while the block runs."""
        command = [*self.cluster.kubectl_command(), "--namespace=toolmesh", "port-forward", target, f":{port}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                found = _FORWARDING.search(process.stdout.readline())
                assert found is not None
                yield int(found[1])
            finally:
                process.kill()

    def mint(self) -> str:
        """Returns a token that an operator mints."""
        with self.forward("deployment/authz", 8443) as port:
            options = [f"--url=https://localhost:{port}", *self._operator_options()]
            # Tools of an unknown publisher are called by name, not by `*`.
            claims = ["--sub=did:web:example.com:alice", "--tools=core.*,samples.*", f"--scopes={SCOPES}"]
            return self._toolmesh("token", "mint", *options, *claims, "--trust=60", "--ttl=6h", "--raw").strip()

    def call(self, token: str, *words: str) -> str:
        """Runs a command of a caller through the edge."""
        with self.forward("service/edge", 8080) as port:
            return self._toolmesh(*words, TOOLMESH_URL=f"http://localhost:{port}", TOOLMESH_TOKEN=token)

    @contextmanager
    def steady_load(self, token: str, kind: str = "echo") -> Iterator[RunningLoad]:
        """Calls a tool through the edge's service, from the node, while the block runs."""
        output = self._folder / f"{kind}.json"
        process = self._start_load(token, output, kind)
        try:
            yield RunningLoad(output)
        finally:
            process.communicate(timeout=300)

    def call_many(self, token: str, kind: str, calls: int) -> Load:
        """Makes a number of calls and returns what became of them."""
        output = self._folder / f"{kind}.json"
        self._start_load(token, output, kind, str(calls)).wait(timeout=600)
        return RunningLoad(output).read()

    def require_records(self, token: str, invocations: Iterable[str]) -> None:
        """Fails unless the log has one successful outcome of each call."""
        with self.forward("service/edge", 8080) as port, Client(f"http://localhost:{port}", token=token) as client:
            records = client.query_records(status="SUCCESS", page_size=1000, timeout=60)
            outcomes = Counter(logged.record.invocation_id for logged in records)
        assert {name for name in invocations if outcomes[name] != 1} == set()

    def _start_load(self, token: str, output: Path, *words: str) -> subprocess.Popen[bytes]:
        address = self.cluster.get("--namespace=toolmesh", "service", "edge")["spec"]["clusterIP"]
        output.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.cluster.steady_load", f"http://{address}:8080", str(output), *words]
        return subprocess.Popen(
            enter_node(self.cluster.state).command(command),
            cwd=REPOSITORY,
            env={**os.environ, "TOOLMESH_TOKEN": token},
            stdin=subprocess.PIPE,
        )

    def _write_operator(self) -> None:
        secret = self.cluster.get("--namespace=toolmesh", "secret", "operator-tls")["data"]
        for name, content in secret.items():
            (self._folder / name).write_bytes(base64.b64decode(content))

    def _operator_options(self) -> list[str]:
        files = {"cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"}
        return [f"--{option}={self._folder / name}" for option, name in files.items()]

    def _toolmesh(self, *words: str, **variables: str) -> str:
        command = [str(Path(sys.executable).with_name("toolmesh")), *words]
        done = subprocess.run(command, env=_environment(variables), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("TOOLMESH_")}
    return {**others, **variables}
