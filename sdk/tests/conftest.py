"""A mesh of real gRPC servers whose answers a test scripts, and both clients behind one way of driving them."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent import futures
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import pytest
from toolmesh.approval.v1 import approval_service_pb2_grpc
from toolmesh.audit.v1 import audit_service_pb2_grpc, usage_service_pb2_grpc
from toolmesh.authz.v1 import authz_service_pb2_grpc, policy_service_pb2_grpc, token_service_pb2_grpc
from toolmesh.executor.v1 import (
    circuit_service_pb2_grpc,
    executor_service_pb2_grpc,
    invocation_service_pb2_grpc,
    key_service_pb2_grpc,
    tool_log_service_pb2_grpc,
)
from toolmesh.registry.v1 import (
    discovery_service_pb2_grpc,
    lifecycle_service_pb2_grpc,
    namespace_service_pb2_grpc,
    registry_service_pb2_grpc,
    trust_service_pb2_grpc,
    upstream_service_pb2_grpc,
)
from toolmesh_sdk import AsyncClient, Client
from toolmesh_sdk.cli.main import build
from typer.testing import CliRunner

from libs.common.errors import MeshError
from libs.common.rpc.status import status_code, trailing_details


@dataclass(frozen=True)
class Seen:
    """One call as a server saw it."""

    method: str
    request: Any
    metadata: dict[str, str]
    remaining: float | None
    peer: str


class ScriptedMesh:
    """Serves every method of the contract with the replies that a test scripted, in order; the last one stays.

    A reply is a message, a list of messages for a stream, a MeshError that leaves as the mesh's services send it, a
    bare status code for a failure without an envelope, or a function of the request that returns one of these.
    """

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.released = threading.Event()
        self._replies: dict[str, deque[Any]] = defaultdict(deque)

    def answer(self, method: str, *replies: Any) -> None:
        """Script the next replies of a method."""
        self._replies[method] = deque(replies)

    def hold(self, request: Any) -> Any:
        """A reply that does not come before the caller has given up."""
        self.released.wait(30)
        return grpc.StatusCode.CANCELLED

    def of(self, method: str) -> list[Seen]:
        """Return the calls of a method."""
        return [call for call in self.seen if call.method == method]

    def reply(self, method: str, request: Any, context: grpc.ServicerContext) -> Any:
        """Note a call and give its scripted reply, or fail as scripted."""
        metadata = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        identities = context.peer_identities() or []
        copy = type(request).FromString(request.SerializeToString())
        peer = b",".join(identities).decode()
        self.seen.append(Seen(method, copy, metadata, context.time_remaining(), peer))
        replies = self._replies[method]
        if not replies:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "not scripted")
        reply = replies.popleft() if len(replies) > 1 else replies[0]
        return self._settle(reply(request) if callable(reply) else reply, context)

    def stream(self, method: str, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """The same for a stream: its messages, and then perhaps a failure."""
        for item in self.reply(method, request, context):
            yield self._settle(item, context)

    def _settle(self, reply: Any, context: grpc.ServicerContext) -> Any:
        if isinstance(reply, MeshError):
            context.set_trailing_metadata(trailing_details(reply))
            context.abort(status_code(reply), reply.message)
        if isinstance(reply, grpc.StatusCode):
            context.abort(reply, "said by the transport")
        return reply


def servicer(parent: type, mesh: ScriptedMesh) -> Any:
    """Return a servicer whose every method is scripted."""

    def method(name: str) -> Callable[..., Any]:
        if name == "StreamInvocation":
            # Its first message is its request.
            return lambda self, requests, context: mesh.stream(name, next(requests), context)
        if name in ("WatchRecords", "WatchInvocation", "WatchTickets", "ReplayPolicySet", "FetchResult"):
            return lambda self, request, context: mesh.stream(name, request, context)
        return lambda self, request, context: mesh.reply(name, request, context)

    names = [name for name in vars(parent) if name[0].isupper()]
    return type(f"Scripted{parent.__name__}", (parent,), {name: method(name) for name in names})()


@pytest.fixture
def mesh() -> Iterator[ScriptedMesh]:
    """The script that every server of a test follows."""
    script = ScriptedMesh()
    yield script
    script.released.set()


@pytest.fixture
def serve(mesh: ScriptedMesh, pki: Any) -> Iterator[Callable[..., str]]:
    """Return a function that starts a server and returns its address: plaintext, or mutual TLS with a mesh identity."""
    with ExitStack() as stack:

        def start(identity: str = "", *, client_certificate: bool = True) -> str:
            server = grpc.server(futures.ThreadPoolExecutor(max_workers=8), options=[("grpc.so_reuseport", 0)])
            executor_service_pb2_grpc.add_ExecutorServiceServicer_to_server(
                servicer(executor_service_pb2_grpc.ExecutorServiceServicer, mesh), server
            )
            approval_service_pb2_grpc.add_ApprovalServiceServicer_to_server(
                servicer(approval_service_pb2_grpc.ApprovalServiceServicer, mesh), server
            )
            invocation_service_pb2_grpc.add_InvocationServiceServicer_to_server(
                servicer(invocation_service_pb2_grpc.InvocationServiceServicer, mesh), server
            )
            circuit_service_pb2_grpc.add_CircuitServiceServicer_to_server(
                servicer(circuit_service_pb2_grpc.CircuitServiceServicer, mesh), server
            )
            upstream_service_pb2_grpc.add_UpstreamServiceServicer_to_server(
                servicer(upstream_service_pb2_grpc.UpstreamServiceServicer, mesh), server
            )
            key_service_pb2_grpc.add_KeyServiceServicer_to_server(
                servicer(key_service_pb2_grpc.KeyServiceServicer, mesh), server
            )
            tool_log_service_pb2_grpc.add_ToolLogServiceServicer_to_server(
                servicer(tool_log_service_pb2_grpc.ToolLogServiceServicer, mesh), server
            )
            registry_service_pb2_grpc.add_RegistryServiceServicer_to_server(
                servicer(registry_service_pb2_grpc.RegistryServiceServicer, mesh), server
            )
            lifecycle_service_pb2_grpc.add_LifecycleServiceServicer_to_server(
                servicer(lifecycle_service_pb2_grpc.LifecycleServiceServicer, mesh), server
            )
            discovery_service_pb2_grpc.add_DiscoveryServiceServicer_to_server(
                servicer(discovery_service_pb2_grpc.DiscoveryServiceServicer, mesh), server
            )
            namespace_service_pb2_grpc.add_NamespaceServiceServicer_to_server(
                servicer(namespace_service_pb2_grpc.NamespaceServiceServicer, mesh), server
            )
            trust_service_pb2_grpc.add_TrustServiceServicer_to_server(
                servicer(trust_service_pb2_grpc.TrustServiceServicer, mesh), server
            )
            audit_service_pb2_grpc.add_AuditServiceServicer_to_server(
                servicer(audit_service_pb2_grpc.AuditServiceServicer, mesh), server
            )
            usage_service_pb2_grpc.add_UsageServiceServicer_to_server(
                servicer(usage_service_pb2_grpc.UsageServiceServicer, mesh), server
            )
            token_service_pb2_grpc.add_TokenServiceServicer_to_server(
                servicer(token_service_pb2_grpc.TokenServiceServicer, mesh), server
            )
            authz_service_pb2_grpc.add_AuthzServiceServicer_to_server(
                servicer(authz_service_pb2_grpc.AuthzServiceServicer, mesh), server
            )
            policy_service_pb2_grpc.add_PolicyServiceServicer_to_server(
                servicer(policy_service_pb2_grpc.PolicyServiceServicer, mesh), server
            )
            port = (
                server.add_insecure_port("127.0.0.1:0")
                if not identity
                else _secure_port(server, pki, identity, client_certificate)
            )
            server.start()
            stack.callback(lambda: server.stop(None).wait())
            return f"127.0.0.1:{port}"

        yield start
        mesh.released.set()


def _secure_port(server: grpc.Server, pki: Any, identity: str, client_certificate: bool) -> int:
    own = pki.of(identity)
    credentials = grpc.ssl_server_credentials(
        [(own.key.read_bytes(), own.cert.read_bytes())], pki.ca.read_bytes(), require_client_auth=client_certificate
    )
    return server.add_secure_port("127.0.0.1:0", credentials)


class Driven:
    """A client of either kind, driven the same way; what it would have waited is noted instead."""

    def __init__(self, kind: str, target: str, **options: Any) -> None:
        self.pauses: list[float] = []
        self.kind = kind
        self.client: Any = (
            Client(target, pause=self.pauses.append, **options)
            if kind == "sync"
            else AsyncClient(target, pause=self._pause, **options)
        )

    async def do(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method that returns something."""
        method = getattr(self.client, name)
        if self.kind == "sync":
            return await asyncio.to_thread(method, *arguments, **options)
        return await method(*arguments, **options)

    async def take(self, name: str, number: int | None = None, **options: Any) -> list[Any]:
        """Call a method that iterates and return its first items, or all of them."""
        iterator = getattr(self.client, name)(**options)
        if self.kind == "sync":
            return await asyncio.to_thread(lambda: list(islice(iterator, number)))
        found: list[Any] = []
        async with aclosing(iterator):
            async for item in iterator:
                found.append(item)
                if len(found) == number:
                    break
        return found

    async def close(self) -> None:
        await self.do("close")

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.fixture(params=["sync", "async"])
async def drive(request: pytest.FixtureRequest) -> AsyncIterator[Callable[..., Driven]]:
    """Return a function that makes a client of the kind this run is about."""
    made: list[Driven] = []

    def make(target: str, **options: Any) -> Driven:
        made.append(Driven(request.param, target, **options))
        return made[-1]

    yield make
    for driven in made:
        await driven.close()


@pytest.fixture
def local_mesh(mesh: ScriptedMesh, serve: Callable[..., str], pki: Any, signer: Any, tmp_path: Path) -> Path:
    """The state folder of a running local mesh: an edge, authz (which mints tokens), the executor and the registry."""
    from toolmesh.authz.v1 import authz_service_pb2

    def issue(request: Any) -> Any:
        tools = [{"tool": grant.tool} for grant in request.tools]
        token = signer.mint(request.subject, scope=" ".join(request.scopes), tools=tools)
        return authz_service_pb2.IssueTokenResponse(token=token)

    mesh.answer("IssueToken", issue)
    edge = serve()
    own = {
        name: {"cert": str(pki.of(name).cert), "key": str(pki.of(name).key)} for name in ("operator", "orchestrator")
    }
    runtime = {
        "running": True,
        "runner_pid": os.getpid(),
        "gateway": {"url": f"http://{edge}", "tls_url": "https://127.0.0.1:1"},
        "grpc": {"address": edge},
        "ca": str(pki.ca),
        **own,
        "services": [
            {"name": "authz", "address": serve("authz"), "ops": None},
            {"name": "executor", "address": serve("executor"), "ops": None},
            {"name": "registry", "address": serve("registry"), "ops": None},
        ],
    }
    (tmp_path / "runtime.json").write_text(json.dumps(runtime))
    return tmp_path


@pytest.fixture
def toolmesh(local_mesh: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that runs the command line against the local mesh, in this process, without plugins."""
    for name in ("TOOLMESH_URL", "TOOLMESH_TOKEN", "TOOLMESH_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TOOLMESH_STATE", str(local_mesh))

    def run(*arguments: str, stdin: str = "") -> Any:
        return CliRunner().invoke(build(plugins=(), only=arguments[0]), list(arguments), input=stdin)

    return run
