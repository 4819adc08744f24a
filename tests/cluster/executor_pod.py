"""Pods of the executor's image that run the escape suite: as the executor runs, under `restricted`, and privileged."""

from __future__ import annotations

import copy
import io
import subprocess
import tarfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path
from typing import Any

from tests.cluster.deployed_mesh import DeployedMesh, namespace_of
from tests.cluster.running_cluster import REPOSITORY, namespace

PYTHON = "/app/venv/bin/python"
SUITE = "services/executor/tests/adapters/sandbox/test_escapes.py"
_NAME = "escapes"
_FOLDER = "/tmp/suite"
# What runs tests; the image has none of it.
_PACKAGES = ("pytest", "pytest-asyncio", "pluggy", "iniconfig", "packaging", "typing-extensions", "pygments")
_WAIT = "import signal; signal.pause()"
# The tests join the packages of the image, whose code they attack.
_PLUGIN = """
import services.executor, services.executor.adapters.sandbox
services.executor.__path__.append("/tmp/suite/services/executor")
"""
_RECEIVE = f"import sys, tarfile; tarfile.open(fileobj=sys.stdin.buffer, mode='r|').extractall({_FOLDER!r})"


@dataclass(frozen=True)
class Place:
    """A way to run the executor's image."""

    level: str
    """The Pod Security level that its namespace enforces."""
    pod: dict[str, Any]
    container: dict[str, Any]


_RESTRICTED_PROFILE = {"type": "Localhost", "localhostProfile": "toolmesh-executor-gvisor-v3.json"}
PLACES = {
    "own": Place("baseline", {}, {}),
    "restricted": Place("restricted", {}, {"procMount": None, "seccompProfile": _RESTRICTED_PROFILE}),
    "privileged": Place(
        "privileged",
        {"hostUsers": True, "securityContext": {}},
        {"privileged": True, "runAsUser": 0, "procMount": None, "seccompProfile": None}
        | {"allowPrivilegeEscalation": True, "capabilities": None},
    ),
}


@dataclass(frozen=True)
class Outcome:
    """How the tests of a run ended, by the name of the sandbox."""

    passed: Counter[str]
    failed: list[str]
    skipped: Counter[str]


class ExecutorPod:
    """A pod of the executor's image that only waits."""

    def __init__(self, mesh: DeployedMesh, place: str) -> None:
        self._mesh, self._place = mesh, PLACES[place]
        self._namespace = f"{_NAME}-{place}"

    def start(self) -> None:
        """Starts the pod and brings the tests into it."""
        cluster = self._mesh.cluster
        cluster.apply(namespace(self._namespace, self._place.level))
        cluster.apply(self._manifest())
        cluster.wait(f"--namespace={self._namespace}", "wait", "--for=condition=Ready", f"pod/{_NAME}")
        self._run(_RECEIVE, _archive())

    def run_escapes(self) -> Outcome:
        """Runs the escape suite."""
        report = f"{_FOLDER}/report.xml"
        options = ["-p", "suite_plugin", "-p", "no:cacheprovider", "--noconftest", "--import-mode=importlib", "-q"]
        settings = ["-c", "/dev/null", "-o", "asyncio_mode=auto", f"--rootdir={_FOLDER}", f"--junitxml={report}"]
        words = [*options, *settings, f"{_FOLDER}/{SUITE}"]
        self._run(f"import sys; sys.path.insert(0, {_FOLDER!r}); import pytest; sys.exit(pytest.main({words!r}))")
        return _read_report(self._run(f"print(open({report!r}).read())"))

    def end(self) -> None:
        """Removes the pod with its namespace."""
        self._mesh.cluster.kubectl("delete", "namespace", self._namespace)

    def _run(self, code: str, given: bytes = b"") -> str:
        command = [*self._mesh.cluster.kubectl_command(), f"--namespace={self._namespace}", "exec", "--stdin", _NAME]
        command += ["--", PYTHON, "-c", code]
        done = subprocess.run(command, input=given, capture_output=True, timeout=1800, check=False)
        return done.stdout.decode()

    def _manifest(self) -> dict[str, Any]:
        deployment = self._mesh.cluster.get(f"--namespace={namespace_of('executor')}", "deployment", "executor")
        spec = copy.deepcopy(deployment["spec"]["template"]["spec"])
        container = spec["containers"][0]
        own = {"image": container["image"], "imagePullPolicy": "IfNotPresent", "name": _NAME}
        security = {**container["securityContext"], **self._place.container}
        spec = {
            "hostUsers": spec.get("hostUsers", True),
            "securityContext": spec["securityContext"],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            **self._place.pod,
            "containers": [
                {
                    **own,
                    "command": [PYTHON, "-c", _WAIT],
                    "env": [{"name": "HOME", "value": "/tmp"}],
                    "securityContext": {name: value for name, value in security.items() if value is not None},
                    "resources": container["resources"],
                    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                }
            ],
            "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "4Gi"}}],
        }
        metadata = {"name": _NAME, "namespace": self._namespace}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _archive() -> bytes:
    """Returns the tests and what runs them, as a tar file."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for path, name in _members():
            archive.add(path, name, recursive=False)
        plugin = tarfile.TarInfo("suite_plugin.py")
        plugin.size = len(_PLUGIN)
        archive.addfile(plugin, io.BytesIO(_PLUGIN.encode()))
    return held.getvalue()


def _members() -> Iterator[tuple[Path, str]]:
    for package in _PACKAGES:
        for file in files(package) or ():
            if file.suffix != ".pyc" and not file.is_absolute() and ".." not in file.parts:
                yield Path(str(file.locate())), str(file)
    tests = REPOSITORY / SUITE
    for folder in tests.relative_to(REPOSITORY).parents:
        if "tests" in folder.parts and (REPOSITORY / folder / "__init__.py").exists():
            yield REPOSITORY / folder / "__init__.py", str(folder / "__init__.py")
    yield tests, SUITE
    helpers = "services/executor/tests/sandboxes.py"
    yield REPOSITORY / helpers, helpers


def _read_report(text: str) -> Outcome:
    outcome = Outcome(Counter(), [], Counter())
    for case in ET.fromstring(text).iter("testcase"):  # noqa: S314
        name = case.get("name", "")
        sandbox = next(kind for kind in ("bubblewrap", "gvisor", "") if kind in name)
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failed.append(name)
        else:
            (outcome.passed if case.find("skipped") is None else outcome.skipped)[sandbox] += 1
    return outcome
