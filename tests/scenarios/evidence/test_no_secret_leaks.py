"""Secrets in arguments, results, errors and headers reach the tool and its caller, and those that the mesh keeps reach
the service alone: no database, no log, no trace, no metric, no export, no stream, no topic and no process list ever
holds them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import httpx
import orjson
import pytest
import redis
from pyarrow.parquet import read_table  # type: ignore[import-untyped]
from toolmesh.registry.v1 import registry_service_pb2 as registry_pb
from toolmesh.registry.v1 import registry_service_pb2_grpc as registry_rpc
from toolmesh.registry.v1 import tool_manifest_pb2 as manifest_pb

from libs.common.ids import new_id
from localmesh.wheels import postgres_programs
from services.executor.adapters.sandbox.rootfs import interpreter_path
from services.executor.tests.adapters.secrets.oauth.authorization_server import running_server
from services.executor.tests.adapters.secrets.vault.stand_in import StandIn, running_stand_in
from tests.conformance.upstream.server import FixtureServer
from tests.harness.evidence.planted import Planted, files_below, found_in, process_list
from tests.harness.executors.announcing import announced_executor
from tests.harness.mesh import Mesh, cli, invoke, running_mesh
from tests.harness.servers import mcp_server
from tests.harness.servers.kafka import KafkaCluster, running_kafka
from tests.harness.servers.mcp_server import tool as definition
from tests.harness.servers.otlp import OtlpReceiver, running_otlp
from tests.harness.servers.rest_server import rest_server
from tests.harness.servers.websocket_server import described, running_websocket_server
from tests.harness.stores import wait_until

VAULT_CREDENTIAL = "the-secret-id-of-an-executor-0199"
SERVICES = ("registry", "authz", "executor", "approval", "audit", "gateway")
TOPIC, PARTITIONS = "toolmesh.audit.records", 3
# Keys and passwords of the mesh itself lie in their own folders, and are no argument of a call.
NOT_SEARCHED = ("secrets", "pki")


@dataclass
class Watched:
    """A mesh whose every outlet is seen."""

    mesh: Mesh
    otlp: OtlpReceiver
    kafka: KafkaCluster | None
    vault: StandIn
    planted: dict[str, str] = field(default_factory=dict)
    token: str = ""
    visible: str = field(default_factory=lambda: f"visible-{new_id()}")
    """Something harmless that was sent beside the secrets. Where it is not found, the search does not see."""

    @cached_property
    def parts(self) -> dict[str, Any]:
        """Where everything runs."""
        return {part["name"]: part for part in self.mesh.status()["services"]}

    def plant(self, place: str) -> Planted:
        """Return secrets of their own for one place."""
        made = Planted()
        self.planted |= {f"{place}: {name}": secret for name, secret in made.all().items()}
        return made

    def relayed(self) -> bytes:
        """Return everything that the relay has told of."""
        if self.kafka is not None:
            lanes = self.kafka.read(TOPIC, PARTITIONS)
            return b"\n".join(message.value() or b"" for lane in lanes for message in lane)
        password = (self.mesh.state / "secrets" / "valkey").read_text()
        port = int(self.parts["valkey"]["address"].rpartition(":")[2])
        with redis.Redis(port=port, password=password) as client:
            streams = client.keys("toolmesh:audit:*")
            return b"\n".join(fields[b"event"] for key in streams for _, fields in client.xrange(key))

    def dumped(self) -> bytes:
        """Return a dump of the whole database, all schemas."""
        password = (self.mesh.state / "secrets" / "database" / "postgres").read_text()
        host, _, port = self.parts["postgres"]["address"].rpartition(":")
        command = [str(postgres_programs() / "pg_dump"), "-h", host, "-p", port, "-U", "postgres", "toolmesh"]
        done = subprocess.run(command, env={**os.environ, "PGPASSWORD": password}, capture_output=True, check=True)
        return done.stdout

    def metrics(self, service: str) -> bytes:
        """Return what a service tells its operator."""
        return httpx.get(f"http://{self.parts[service]['ops']}/metrics").content

    def exported(self) -> dict[str, bytes]:
        """Return every file of an export of the whole log; what is compressed, as text."""
        with TemporaryDirectory() as folder:
            out = Path(folder) / "export"
            cli("audit", "export", "--out", str(out), "--parquet", "--ocsf", "--json", state=self.mesh.state)
            files = files_below(out)
            columns = {str(p.relative_to(out)): read_table(p).to_pylist() for p in out.rglob("*.parquet")}
        return files | {name: repr(rows).encode() for name, rows in columns.items()}

    @cached_property
    def outlets(self) -> dict[str, bytes]:
        """Return all there is to be searched."""
        found = {
            "dump": self.dumped(),
            "relay": self.relayed(),
            "traces": self.otlp.of("trace"),
            "metrics": self.otlp.of("metrics") + b"".join(self.metrics(name) for name in SERVICES),
            "processes": process_list(),
            "records": cli("audit", "tail", "-n", "1000", "--json", state=self.mesh.state).stdout.encode(),
        }
        found |= {f"export {name}": content for name, content in self.exported().items()}
        return found | {f"file {n}": c for n, c in files_below(self.mesh.state, without=NOT_SEARCHED).items()}


@pytest.fixture(scope="module", params=["redis", pytest.param("kafka", marks=pytest.mark.faults)])
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A mesh of this module's own with a relay to each kind of sink, that has seen all the secrets."""
    with ExitStack() as stack:
        otlp, endpoint = stack.enter_context(running_otlp())
        environ = {"TOOLMESH_OTLP_ENDPOINT": endpoint, "TOOLMESH_LOG_LEVEL": "debug", "TOOLMESH_RELAY": request.param}
        environ["TOOLMESH_EGRESS_INTERNAL"] = "127.0.0.0/8"
        kafka = stack.enter_context(running_kafka()) if request.param == "kafka" else None
        if kafka is not None:
            kafka.make_topic(TOPIC, PARTITIONS)
            environ["TOOLMESH_KAFKA_BROKERS"] = kafka.bootstrap
        vault = stack.enter_context(running_stand_in())
        environ |= vault_settings(vault, tmp_path_factory.mktemp("vault"))
        mesh = stack.enter_context(running_mesh(tmp_path_factory.mktemp("secrets"), **environ))
        made = Watched(mesh, otlp, kafka, vault, token=mesh.token())
        made.planted["vault credential"] = VAULT_CREDENTIAL
        for call in CALLS:
            call(made)
        settle(made)
        yield made


def vault_settings(vault: StandIn, folder: Path) -> dict[str, str]:
    """Return the settings of an executor that logs in to the stand-in for Vault."""
    vault.credentials["approle"] = ("role_id secret_id", "executor", VAULT_CREDENTIAL)
    credential = folder / "secret-id"
    credential.write_text(VAULT_CREDENTIAL)
    return {
        "TOOLMESH_VAULT_ADDRESS": vault.url,
        "TOOLMESH_VAULT_LOGIN": "approle",
        "TOOLMESH_VAULT_ROLE": "executor",
        "TOOLMESH_VAULT_CREDENTIAL": str(credential),
    }


def settle(watched: Watched) -> None:
    """Wait until what was seen has gone wherever it goes."""
    last = f"last-{new_id()}"
    answer = watched.mesh.rpc("tools.invoke", {"tool": "echo", "arguments": {"text": last}}, token=watched.token)
    assert "result" in answer.json()
    wait_until(lambda: last.encode() in watched.relayed(), "the relay of the last record")
    trace = bytes.fromhex(answer.json()["result"]["trace_id"])
    wait_until(lambda: trace in watched.otlp.of("trace"), "the trace of the last call")


# ---- where secrets are planted


def tool_with_declared_fields(watched: Watched) -> None:
    """A manifest names its sensitive fields by pointer and by mark. No runner here has the tool; what was asked is
    recorded."""
    properties = {
        "note": {"type": "string"},
        "account": {"type": "string", "x-sensitivity": "high"},
        "details": {"type": "object", "properties": {"pin": {"type": "string"}}, "additionalProperties": False},
    }
    manifest = manifest_pb.ToolManifest(
        schema_version="0.2.0",
        tool_id="pay",
        namespace="acme",
        version="1.0.0",
        title="Pay",
        description="Pays an amount from an account to another.",
        provider="acme",
        kind=manifest_pb.TOOL_KIND_FUNCTION,
        protocol=manifest_pb.TOOL_PROTOCOL_NATIVE,
        input=manifest_pb.InputContract(
            schema=orjson.dumps({"type": "object", "properties": properties}), sensitive_fields=["/details/pin"]
        ),
        output=manifest_pb.OutputContract(schema=b'{"type": "object"}'),
        execution=manifest_pb.ExecutionProfile(
            runner=manifest_pb.RUNNER_KIND_REMOTE, timeout_class=manifest_pb.TIMEOUT_CLASS_STANDARD
        ),
        permission=manifest_pb.PermissionProfile(required_scopes=["tools:call"]),
        mutation_class=manifest_pb.MUTATION_CLASS_READ_ONLY,
        observability=manifest_pb.Observability(audit_detail=manifest_pb.AUDIT_DETAIL_SUMMARY),
    )
    with announced_executor(watched.mesh), watched.mesh.direct_channel("registry", "operator") as channel:
        request = registry_pb.RegisterToolRequest(manifest=manifest, request_id=new_id())
        registry_rpc.RegistryServiceStub(channel).RegisterTool(request)

    def known() -> bool:
        asked = watched.mesh.rpc("tools.invoke", {"tool": "acme.pay", "arguments": {}}, token=watched.token)
        return asked.json()["error"]["data"]["code"] != "TOOL_NOT_FOUND"

    wait_until(known, "the tool at the executor")
    secret = watched.plant("declared argument")
    arguments = {"note": watched.visible, "account": secret.iban, "details": {"pin": secret.password}}
    watched.mesh.rpc("tools.invoke", {"tool": "acme.pay", "arguments": arguments}, token=watched.token)
    wrong = {"account": secret.card, "details": {"pin": {"nested": secret.api_key}}, "undeclared": secret.token}
    watched.mesh.rpc("tools.invoke", {"tool": "acme.pay", "arguments": wrong}, token=watched.token)


def arguments_and_results(watched: Watched) -> None:
    """A tool that says back what it hears, so that what is planted in arguments is in its results as well."""
    named, written = watched.plant("telling name"), watched.plant("free text")
    value: dict[str, Any] = {
        "password": named.password,
        "api_key": named.api_key,
        "credentials": {"clientSecret": named.token, "aws_access_key_id": named.cloud_key},
        "card_number": named.card,
        "people": [{"ssn": named.ssn, "iban": named.iban}],
    }
    text = (
        f"{watched.visible} pay with {written.card} or from {written.iban}, SSN {written.ssn}, using {written.api_key} "
        f"and {written.cloud_key}; Authorization: Bearer {written.token}; password={written.password}"
    )
    arguments = {"text": text, "value": value}
    token = watched.token
    answer = watched.mesh.rpc("tools.invoke", {"tool": "echo", "arguments": arguments}, token=token).json()
    # The caller gets what it asked for, whole.
    assert answer["result"]["structured_content"] == arguments
    with watched.mesh.edge_channel() as channel:
        response = invoke(channel, "echo", orjson.dumps(arguments), token=token)
    assert orjson.loads(response.result.structured_content) == arguments


def remembered_results(watched: Watched) -> None:
    """Calls with an idempotency key: what they answered is kept for repeated calls alone."""
    secret = watched.plant("remembered result")
    arguments = {
        "text": f"card {secret.card} and {secret.api_key}",
        "value": {"password": secret.password, "any": secret.iban},
    }
    with watched.mesh.edge_channel() as channel:
        answers = [
            invoke(channel, "echo", orjson.dumps(arguments), token=watched.token, request={"idempotency_key": "again"})
            for _ in range(2)
        ]
    assert [orjson.loads(answer.result.structured_content) for answer in answers] == [arguments, arguments]
    assert answers[1].result.replayed


def errors(watched: Watched) -> None:
    """Calls that fail in as many ways as there are, with a secret where the failure is."""
    token = watched.token
    secret = watched.plant("error")
    for params in (
        {"tool": "arithmetic", "arguments": {"expression": f"1 + {secret.api_key}"}},
        {"tool": "arithmetic", "arguments": {"expression": f"'{secret.password}'", "password": secret.password}},
        {"tool": "echo", "arguments": {"text": {"password": secret.token}}},
        {"tool": "echo", "arguments": {"text": "x", "card_number": secret.card}},
        {"tool": "echo", "arguments": f"password={secret.password} {secret.iban}"},
        {"tool": "echo", "version": "9.9.9", "arguments": {"text": f"SSN {secret.ssn}"}},
    ):
        assert "error" in watched.mesh.rpc("tools.invoke", params, token=token).json()
    watched.mesh.rpc(f"tools.{secret.cloud_key}", {"password": secret.password}, token=token)
    watched.mesh.post(f'{{"jsonrpc": "2.0", "id": 1, "password": "{secret.password}", '.encode(), token=token)
    narrow = watched.mesh.token(tools="clock_now")
    denied = {"tool": "echo", "arguments": {"text": f"card {secret.card}", "value": {"password": secret.password}}}
    assert "error" in watched.mesh.rpc("tools.invoke", denied, token=narrow).json()


def headers(watched: Watched) -> None:
    """Tokens good and bad, and what else callers put into headers."""
    secret = watched.plant("header")
    token = watched.token
    watched.planted["header: bearer"] = token
    watched.planted["header: signature"] = token.rpartition(".")[2]
    sent = {
        "x-api-key": secret.api_key,
        "cookie": f"session={secret.password}",
        "proxy-authorization": f"Basic {secret.token}",
        "x-card": secret.card,
    }
    body = {"tool": "echo", "arguments": {"text": "x"}}
    assert "result" in watched.mesh.rpc("tools.invoke", body, token=token, headers=sent).json()
    assert "error" in watched.mesh.rpc("tools.invoke", body, token=secret.api_key).json()
    spoiled = token[:-8] + "A" * 8
    watched.planted["header: spoiled token"] = spoiled
    assert "error" in watched.mesh.rpc("tools.invoke", body, token=spoiled).json()
    with watched.mesh.edge_channel() as channel:
        invoke(channel, "echo", b'{"text": "x"}', token=token, metadata=[("x-api-key", secret.cloud_key)])


def stored_secrets(watched: Watched) -> None:
    """An API, a confined MCP server and a remote one repeat the secrets that they get, before and after a rotation."""
    mesh, connected, uses = (
        watched.mesh,
        watched.mesh.state.with_name(f"servers-{new_id()}"),
        ["api", "stdio", "remote"],
    )
    connected.mkdir(mode=0o755)
    tools, program = connected / "tools.json", connected / "server.py"
    tools.write_text(json.dumps([definition("digest"), definition("look")]))
    program.write_bytes(Path(mcp_server.__file__).read_bytes())
    command = [interpreter_path(), "-I", "-S", "-B", str(program), str(tools)]
    with rest_server() as api, FixtureServer() as remote:
        Thread(target=remote.serve_forever, daemon=True).start()
        for verb in ("set", "rotate"):
            for use in uses:
                # Not of a form that redaction knows.
                value = watched.planted[f"stored {use} {verb}"] = f"kept {new_id()} by the store"
                bound = ("--host", "127.0.0.1", "--namespace", f"leaky-{use}") if verb == "set" else ()
                mesh.store_secret(value, verb, f"{use}_key", *bound)
            if verb == "set":
                connect = (
                    "connect",
                    "openapi",
                    f"{api.url}/openapi.json",
                    "--id",
                    "leaky-api",
                    "--read-only",
                    "search",
                )
                cli(*connect, "--secret", "token=api_key", state=mesh.state)
                cli(
                    "connect",
                    "mcp",
                    remote.url,
                    "--id",
                    "leaky-remote",
                    "--secret",
                    "authorization=remote_key",
                    state=mesh.state,
                )
                stdio = ("--id", "leaky-stdio", "--mount", str(connected), "--secret", "KEY=stdio_key")
                cli("connect", "mcp", *stdio, "--", *command, state=mesh.state)
            answers = [
                cli("call", tool, arguments, "--json", state=mesh.state).stdout
                for tool, arguments in (
                    ("leaky-api.search", '{"body": {"title": "x"}}'),
                    ("leaky-remote.prompts_list", "{}"),
                    ("leaky-stdio.look", "{}"),
                    ("leaky-stdio.digest", '{"text": "KEY"}'),
                )
            ]
            api_value, stdio_value, remote_value = (watched.planted[f"stored {use} {verb}"] for use in uses)
            # Each service got the value of now, and its caller did not.
            assert api.seen[-1]["authorized"] == f"Bearer {api_value}"
            assert remote.authorization == f"Bearer {remote_value}"
            assert sha256(stdio_value.encode()).hexdigest() in answers[-1]
            assert found_in("".join(answers).encode(), watched.planted) == set()
        remote.shutdown()


def vault_and_granted_tokens(watched: Watched) -> None:
    """Values of Vault, secrets of OAuth 2 clients, the tokens that these are granted, and assertions about callers."""
    mesh, state = watched.mesh, watched.mesh.state
    with rest_server() as api, running_server() as login, running_websocket_server() as socket:
        for grant, *options in (("exchange", "--for-caller"), ("client",)):
            login.secret = watched.planted[f"oauth {grant} secret"] = f"kept {new_id()} by a client"
            where = ("--host", "127.0.0.1", "--namespace", f"granted-{grant}", "--token-url", login.url)
            mesh.store_secret(login.secret, "set", f"{grant}_key", *where, "--client-id", "mesh client", *options)
            connect = (
                "connect",
                "openapi",
                f"{api.url}/openapi.json",
                "--id",
                f"granted-{grant}",
                "--read-only",
                "search",
            )
            cli(*connect, "--secret", f"token={grant}_key", state=state)
            answer = cli("call", f"granted-{grant}.search", '{"body": {"title": "x"}}', "--json", state=state).stdout
            granted = watched.planted[f"oauth {grant} token"] = login.granted[-1]
            # The service got the token, and its caller did not.
            assert api.seen[-1]["authorized"] == f"Bearer {granted}"
            assert found_in(answer.encode(), watched.planted) == set()
        watched.planted["assertion"] = next(each["subject_token"] for each in login.asked if "subject_token" in each)

        operations = state.with_name(f"operations-{new_id()}.json")
        operations.write_text(json.dumps([each for each in described() if each["name"] == "leak"]))
        bound = {"hosts": ["127.0.0.1"], "namespaces": ["leaky-socket"]}
        for version in ("first", "second"):
            value = watched.planted[f"vault {version}"] = f"kept {new_id()} in vault"
            watched.vault.put("toolmesh/socket_key", {"value": value, **bound})
            if version == "first":
                connect = ("connect", "websocket", socket.url, "--id", "leaky-socket", "--operations", str(operations))
                cli(*connect, "--secret", "authorization=socket_key", "--read-only", "leak", state=state)
            answer = cli("call", "leaky-socket.leak", "{}", "--json", state=state).stdout
            assert socket.authorization[-1] == f"Bearer {value}"
            assert found_in(answer.encode(), watched.planted) == set()
        for token in watched.vault.tokens:
            watched.planted[f"vault token {len(watched.planted)}"] = token


LEAKY = '''
from hashlib import sha256

from toolmesh_tool import Call, ToolFailure, tool


@tool(mutation_class="read_only", tier="process", progress=True, checkpoint={}, secrets={"key": "secret://code_key"})
def betray(how: str, call: Call) -> dict[str, str]:
    """Repeats a secret in every way that it has.

    Args:
        how: What to do beside printing.
    """
    value = call.secret("key")
    print("the key is", value)
    call.log(f"the key is {value}")
    call.progress(percent=1.0, message=value)
    call.partial({"key": value})
    call.checkpoint({"key": value})
    if how == "fail":
        raise ToolFailure(f"the key {value} is not accepted")
    if how == "raise":
        raise ValueError(value)
    return {"key": value, "digest": sha256(value.encode()).hexdigest()}
'''


def secrets_of_code(watched: Watched) -> None:
    """The function of a pack repeats the secret that it reads, before and after a rotation, in calls and in a job."""
    mesh, state = watched.mesh, watched.mesh.state
    with TemporaryDirectory() as folder:
        pack = Path(folder) / "leakycode"
        pack.mkdir()
        (pack / "pack.json").write_text('{"name": "leakycode"}')
        (pack / "tools.py").write_text(LEAKY)
        cli("pack", "dev", str(pack), "--once", state=state)
    for verb in ("set", "rotate"):
        value = watched.planted[f"code {verb}"] = f"kept {new_id()} for code"
        bound = ("--namespace", "leakycode") if verb == "set" else ()
        mesh.store_secret(value, verb, "code_key", *bound)
        outputs = ""
        for how, *options in (("return",), ("fail", "--debug"), ("raise", "--debug"), ("return", "--follow")):
            arguments = json.dumps({"how": how})
            ran = cli("call", "leakycode.betray", arguments, *options, "--json", state=state, check=False)
            assert (ran.returncode == 0) is (how == "return"), ran.stdout + ran.stderr
            outputs += ran.stdout + ran.stderr
        # The code got the value of now, and its caller did not.
        assert sha256(value.encode()).hexdigest() in outputs
        outputs += cli("logs", "--tool", "leakycode.betray", state=state).stdout
        assert "the key is [redacted]" in outputs
        assert found_in(outputs.encode(), watched.planted) == set()
    cli("secrets", "remove", "code_key", "--state", str(state))
    revoked = cli("call", "leakycode.betray", '{"how": "return"}', "--json", state=state, check=False)
    assert "CREDENTIAL_NOT_FOUND" in revoked.stdout + revoked.stderr


CALLS: list[Callable[[Watched], None]] = [
    tool_with_declared_fields,
    arguments_and_results,
    remembered_results,
    errors,
    headers,
    stored_secrets,
    vault_and_granted_tokens,
    secrets_of_code,
]


# ---- where they are looked for


def test_the_search_sees_what_may_be_seen(watched: Watched) -> None:
    """The same calls carried something harmless: it is in the evidence, wherever the evidence is."""
    outlets = watched.outlets
    harmless = {"it": watched.visible}
    assert [name for name in ("dump", "relay", "records") if not found_in(outlets[name], harmless)] == []
    assert [name for name in ("traces", "metrics") if not outlets[name]] == []
    shown = {
        name.rpartition(".")[2] for name in outlets if name.startswith("export") and found_in(outlets[name], harmless)
    }
    assert {"ndjson", "parquet"} <= shown
    # The confined server runs as long as it is connected.
    assert b"servers-" in outlets["processes"]
    assert {"file logs/executor.log", "file logs/audit.log", "file logs/envoy.log"} <= outlets.keys()


def test_no_outlet_of_the_mesh_holds_a_secret(watched: Watched) -> None:
    leaks = {name: found for name, content in watched.outlets.items() if (found := found_in(content, watched.planted))}
    assert leaks == {}


def test_a_secret_that_is_somewhere_would_be_found(tmp_path: Path) -> None:
    """The search itself, on every disguise that it claims to see through."""
    secret = Planted().all()
    for name, value in secret.items():
        plain = b"before " + value.encode() + b" after"
        assert found_in(plain, secret) >= {name}
        assert found_in(plain.hex().encode(), secret) >= {name}
    assert found_in(b"nothing to see", secret) == set()
