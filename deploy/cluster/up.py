"""`make cluster-up`: builds what is missing, starts the node, and installs what every cluster has."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path

from deploy.cluster.addresses import LOOPBACK, NODE, api_url
from deploy.cluster.build.artifacts import build_agent_sandbox, build_artifacts
from deploy.cluster.certificates import issue_certificates
from deploy.cluster.errors import ClusterError
from deploy.cluster.kubeconfig import USERS, render_kubeconfig
from deploy.cluster.node.configuration import render_files
from deploy.cluster.node.control_groups import find_hierarchies
from deploy.cluster.node.entry import NodeEntry, enter_node
from deploy.cluster.node.lifecycle import is_running, open_listener, start_node, stop_node
from deploy.cluster.progress import Progress
from deploy.cluster.requirements import RUN_PROGRAMS, require_machine, require_root
from deploy.cluster.state_folder import StateFolder, read_record

ADDONS = Path(__file__).resolve().parent / "addons"
IMAGES = Path("build") / "images"
OVERLAY = Path("deploy") / "k8s" / "overlays" / "local"
# The namespaces of the overlay, and how long the mesh may take until it serves.
MESH_NAMESPACES = ("toolmesh", "toolmesh-executor")
_MESH_SECONDS = 900
_READY_SECONDS = 300.0
_PAUSE_SECONDS = 0.3


def bring_up(state: StateFolder, progress: Progress) -> None:
    """Starts the cluster; one that runs stays as it is. A start that fails is ended, and its logs stay."""
    require_root()
    require_machine(RUN_PROGRAMS)
    find_hierarchies()
    if is_running(read_record(state)):
        progress.say(f"The cluster runs already. Its kubeconfig is {state.kubeconfig}")
        return
    stop_node(state)
    cache = build_artifacts(progress)
    try:
        _start(state, cache, progress)
    except BaseException:
        stop_node(state)
        progress.say(f"The start failed and was undone; the logs are in {state.log}")
        raise
    progress.say(f"The cluster is ready after {progress.seconds():.0f} s. Its kubeconfig is {state.kubeconfig}")


def add_agent_sandbox(state: StateFolder, progress: Progress) -> None:
    """Builds agent-sandbox and installs its objects and its controller in a running cluster. Raises ClusterError."""
    node = enter_node(state)
    built = build_agent_sandbox(progress)
    with progress.step("install agent-sandbox"):
        node.import_image(built / "image.tar")
        # Its definitions are too long for the annotation that `apply` keeps elsewhere.
        node.run("kubectl", "apply", "--server-side", f"--kustomize={built / 'manifests'}")
        status = ("rollout", "status", "deployment/agent-sandbox-controller", f"--timeout={_READY_SECONDS:.0f}s")
        node.run("kubectl", "--namespace=agent-sandbox-system", *status, seconds=_READY_SECONDS + 30)


def _start(state: StateFolder, cache: Path, progress: Progress) -> None:
    with progress.step("write certificates and configuration"):
        state.make()
        listener = open_listener()
        _write_files(state, cache, listener.getsockname()[1])
    with progress.step("start the node"):
        start_node(state, cache, listener)
        listener.close()
    node = enter_node(state)
    with progress.step("wait for the API server"):
        _wait(state, lambda: node.run("kubectl", "get", "--raw", "/readyz"))
    _install(node, state, cache, progress)
    _deploy(node, progress)


def _write_files(state: StateFolder, cache: Path, api_port: int) -> None:
    pki = issue_certificates()
    kubeconfigs = {f"{user}.kubeconfig": render_kubeconfig(user, pki).encode() for user in USERS}
    for name, content in {**pki, **kubeconfigs}.items():
        _write_private(state.pki / name, content)
    _write_private(state.kubeconfig, render_kubeconfig("admin", pki, api_url(LOOPBACK, api_port)).encode())
    open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for name, text in render_files(state, cache, open_files=open_files).items():
        (state.config / name).parent.mkdir(exist_ok=True)
        (state.config / name).write_text(text)


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _install(node: NodeEntry, state: StateFolder, cache: Path, progress: Progress) -> None:
    with progress.step("import the node's images"):
        for archive in sorted((cache / "images").glob("*.tar")):
            node.import_image(archive)
    names = ["netpol", "coredns", "metrics-server", "gvisor"]
    with progress.step(f"install {', '.join(names)}"):
        for name in names:
            node.run("kubectl", "apply", f"--filename={ADDONS / name}.yaml")
    with progress.step("wait for the node"):
        _wait(state, lambda: node.run("kubectl", "wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=10s"))
    with progress.step("wait for names and metrics"):
        for name in ("coredns", "metrics-server"):
            status = ("rollout", "status", f"deployment/{name}", f"--timeout={_READY_SECONDS:.0f}s")
            node.run("kubectl", "--namespace=kube-system", *status, seconds=_READY_SECONDS + 30)


def _deploy(node: NodeEntry, progress: Progress) -> None:
    """Imports the images and applies the manifests of this checkout, where there are any, and waits for the mesh."""
    for archive in sorted(IMAGES.glob("*.tar")):
        with progress.step(f"import {archive}"):
            node.import_image(archive)
    if OVERLAY.is_dir():
        with progress.step(f"apply {OVERLAY}"):
            node.run("kubectl", "apply", f"--kustomize={OVERLAY}")
        with progress.step("wait for the mesh"):
            _wait_for_mesh(node)


def _wait_for_mesh(node: NodeEntry) -> None:
    for namespace in MESH_NAMESPACES:
        kubectl, patience = ("kubectl", f"--namespace={namespace}"), f"--timeout={_MESH_SECONDS}s"
        node.run(*kubectl, "wait", "--for=condition=Complete", "job", "--all", patience, seconds=_MESH_SECONDS + 30)
        node.run(*kubectl, "rollout", "status", "deployment", patience, seconds=_MESH_SECONDS + 30)


def _wait(state: StateFolder, attempt: Callable[[], str]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        try:
            attempt()
        except ClusterError:
            if not is_running(read_record(state)):
                raise ClusterError(f"The node ended; {state.log / 'node.log'} says why.") from None
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return
