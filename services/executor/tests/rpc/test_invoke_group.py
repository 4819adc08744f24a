"""Groups and hooks in the whole process: real mutual TLS, tokens and database, with observable peers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from toolmesh.audit.v1 import audit_record_pb2 as rpb
from toolmesh.common.v1 import error_reason_pb2 as cpb
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc
from toolmesh.executor.v1 import result_envelope_pb2 as epb
from toolmesh.registry.v1.tool_manifest_pb2 import ToolManifest

from libs.common.errors import Reason
from libs.common.json.jsonio import dump, parse
from libs.common.rpc.client import channel_to
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.settings import Address
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.executor.builtin.echo import Echo
from services.executor.config import Settings
from services.executor.tests.peers import AuditPeer, AuthzPeer, RegistryPeer, credentials, registered
from services.executor.tests.waiting import until
from services.executor.wiring import build

Group = Callable[..., Awaitable[pb.InvokeGroupResponse]]
# Set by the hook, which runs in the executor, and so here.
REACHED = threading.Event()
TOKEN = "token-of-the-group"


async def guard(event: dict[str, Any]) -> Any:
    """The deployment's hook: it knows one word that must not be said, and one that takes its time."""
    said = event["input"].get("text", "")
    if said == "slowly":
        REACHED.set()
        await asyncio.Event().wait()
    return {"stop": "not that word"} if said == "forbidden" else {"context": [f"looked at by {event['hook']}"]}


@pytest.fixture
async def group(
    pki: Any,
    signer: Any,
    executor_settings: Callable[..., Settings],
    audit: AuditPeer,
    quiet: Log,
    tmp_path: Path,
) -> AsyncIterator[Group]:
    REACHED.clear()
    declared = {"name": "words", "phase": "pre", "tools": ["core.echo"], "kind": "plugin", "entry_point": _HERE}
    declared |= {"timeout_ms": 30_000}  # type: ignore[dict-item]
    (tmp_path / "hooks.json").write_bytes(dump([declared]))
    application = await build(executor_settings(HOOKS=str(tmp_path / "hooks.json")), quiet, Tracing())
    await application.start()
    address = Address("127.0.0.1", application.server.port)
    async with channel_to("executor", address, credentials(pki, "gateway")) as channel:
        stub, metadata = rpc.ExecutorServiceStub(channel), (("authorization", f"Bearer {signer.mint(jti=TOKEN)}"),)

        async def ask(*calls: pb.GroupCall) -> pb.InvokeGroupResponse:
            return await stub.InvokeGroup(pb.InvokeGroupRequest(calls=calls), metadata=metadata, timeout=10.0)

        # The built-in tools are registered in the background, so the first calls may come too early.
        async with asyncio.timeout(20):
            while (await ask(sum_of("1"))).outcomes[0].HasField("error"):
                continue
        audit.records.clear()
        yield ask
    await application.stop()


_HERE = f"{guard.__module__}:guard"


def echo(text: str, *depends_on: int) -> pb.GroupCall:
    return pb.GroupCall(request=pb.InvokeRequest(tool="echo", arguments=dump({"text": text})), depends_on=depends_on)


def sum_of(expression: str, *depends_on: int) -> pb.GroupCall:
    request = pb.InvokeRequest(tool="arithmetic", arguments=dump({"expression": expression}))
    return pb.GroupCall(request=request, depends_on=depends_on)


async def test_a_group_answers_for_every_call_and_every_outcome_is_on_record(group: Group, audit: AuditPeer) -> None:
    response = await group(echo("hello"), echo("forbidden"), sum_of("1+1", 1), sum_of("2+2", 0))
    said, stopped, never, counted = response.outcomes
    assert parse(said.result.structured_content)["text"] == "hello"  # type: ignore[call-overload, index]
    assert list(said.result.additional_context) == ["looked at by words"]
    assert counted.result.status == epb.RESULT_STATUS_SUCCEEDED
    assert stopped.error.reason == cpb.ERROR_REASON_HOOK_BLOCKED
    assert (stopped.error.message, stopped.error.metadata["hook"]) == ("not that word", "words")
    assert never.error.reason == cpb.ERROR_REASON_SIBLING_CANCELED
    assert {stopped.result.status, never.result.status} == {epb.RESULT_STATUS_SYNTHETIC}
    [blocked] = audit.about(stopped.error.invocation_id)
    assert (blocked.state, blocked.error_reason) == ("blocked", cpb.ERROR_REASON_HOOK_BLOCKED)
    assert [note.split()[:3] for note in blocked.hooks] == [["pre", "words", "stopped"]]
    [canceled] = audit.about(never.error.invocation_id)
    assert canceled.event_class == rpb.EVENT_CLASS_INVOCATION_CANCELED
    assert canceled.error_reason == cpb.ERROR_REASON_SIBLING_CANCELED


async def test_a_group_that_makes_no_sense_is_refused_as_a_whole(group: Group, audit: AuditPeer) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await group(sum_of("1", 1), sum_of("2", 0), sum_of("3", 7))
    error = from_rpc_error(caught.value)
    assert error.reason is Reason.INVALID_REQUEST
    assert sorted(violation.path for violation in error.violations) == [
        "calls[0].depends_on",
        "calls[1].depends_on",
        "calls[2].depends_on[0]",
    ]
    assert audit.records == []


async def test_as_many_calls_as_fit_into_a_group_run_as_one(group: Group, audit: AuditPeer) -> None:
    response = await group(*(sum_of(f"{number}*2") for number in range(64)))
    values = [parse(outcome.result.structured_content) for outcome in response.outcomes]
    assert [value["result"] for value in values if isinstance(value, dict)] == [number * 2 for number in range(64)]
    assert len(audit.records) == 128


async def test_no_call_of_a_group_begins_once_its_token_is_revoked_however_well_its_decision_is_remembered(
    group: Group, audit: AuditPeer, authz: AuthzPeer, registry: RegistryPeer
) -> None:
    one_at_a_time = ToolManifest.FromString(Echo.manifest.SerializeToString())
    one_at_a_time.interface.safety.concurrency_safe = False
    version = registered(one_at_a_time)
    await registry.put(version)
    await until_remembered(group, authz, version.digest)
    under_way = asyncio.ensure_future(group(echo("slowly"), echo("hello")))
    await until(REACHED.is_set)
    authz.invalidations.revoke(token_id=TOKEN)
    stopped, never = (await under_way).outcomes
    assert {stopped.error.reason, never.error.reason} == {cpb.ERROR_REASON_TOKEN_REVOKED}
    [denied] = audit.about(never.error.invocation_id)
    assert (denied.state, denied.error_reason) == ("denied", cpb.ERROR_REASON_TOKEN_REVOKED)


async def until_remembered(group: Group, authz: AuthzPeer, digest: str) -> None:
    """Return once the executor knows this version, and that it may be called."""
    async with asyncio.timeout(20):
        while (await group(echo("x"))).outcomes[0].result.provenance.tool_digest != digest:
            continue
    asked = len(authz.asked)
    await group(echo("x"))
    assert len(authz.asked) == asked
