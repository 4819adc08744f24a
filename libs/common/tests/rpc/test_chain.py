"""The chain around every method, over real mutual TLS."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import grpc
import grpc.aio
import pytest
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as rpc

from libs.common.auth.tokens import TokenVerifier
from libs.common.call_context import serving
from libs.common.errors import MeshError, Reason, Violation
from libs.common.rpc import client
from libs.common.rpc.application import RpcApplication
from libs.common.rpc.chain import UNKNOWN, ChainedMethods, build_chain
from libs.common.rpc.client import channel_to
from libs.common.rpc.limits import MAX_MESSAGE_BYTES, MAX_RECEIVED_BYTES
from libs.common.rpc.policy import AS_PEER, Row, for_caller
from libs.common.rpc.server import Service
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.settings import Address, ProcessSettings, load
from libs.common.telemetry.log import Log
from libs.common.telemetry.metrics import calls_in_flight, calls_total
from libs.common.telemetry.spans import Tracing

PREFIX = "/toolmesh.audit.v1.AuditService/"
# More than the trailers of a call hold, and in one place alone.
MUCH = [Violation(f"/{'long' * 8000}/{n}", "type", "is wrong") for n in range(100)]


class Handlers(rpc.AuditServiceServicer):
    """Answers what each test needs to see of a handler."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.canceled = asyncio.Event()

    async def GetCheckpoint(self, request: Any, context: Any) -> Any:
        self.seen.append(serving())
        return pb.GetCheckpointResponse()

    async def GetRecord(self, request: Any, context: Any) -> Any:
        self.seen.append(request)
        if request.name == "records/unforeseen":
            raise ZeroDivisionError("a secret inside")
        if request.name == "records/forever":
            try:
                await asyncio.Event().wait()
            finally:
                self.canceled.set()
        if request.name == "records/much":
            raise MeshError(Reason.ARGUMENTS_INVALID, violations=MUCH)
        raise MeshError(Reason.NOT_FOUND, metadata={"name": request.name}, retry_after=1.5)

    async def AppendRecords(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            yield pb.AppendRecordsResponse(batch=request.batch)

    async def QueryRecords(self, request: Any, context: Any) -> Any:
        self.seen.append(request)
        return pb.QueryRecordsResponse()


POLICY = {
    PREFIX + "GetCheckpoint": Row({"operator": AS_PEER, "edge": for_caller("audit:read")}, 5.0, True),
    PREFIX + "GetRecord": Row({"operator": AS_PEER}, 5.0, True),
    PREFIX + "AppendRecords": Row({"operator": AS_PEER}, None, True),
}


@pytest.fixture
async def mesh(pki: Any, signer: Any, process_environment: Callable[[str], dict[str, str]]) -> AsyncIterator[Any]:
    settings = load(ProcessSettings, process_environment("audit"))
    handlers = Handlers()  # type: ignore[abstract]
    application = RpcApplication(
        settings,
        Log("test", level="error"),
        Tracing(),
        policy=POLICY,
        verifier=TokenVerifier(signer.fetch_jwks, issuer=settings.issuer, audience=settings.audience),
        services=[
            Service("toolmesh.audit.v1.AuditService", lambda s: rpc.add_AuditServiceServicer_to_server(handlers, s)),
        ],
    )
    await application.start()
    channels: list[grpc.aio.Channel] = []

    def channel(name: str) -> grpc.aio.Channel:
        identity = pki.of(name)
        files = SimpleNamespace(tls_cert=identity.cert, tls_key=identity.key, tls_ca=pki.ca)
        channels.append(channel_to("audit", Address("127.0.0.1", application.server.port), files))
        return channels[-1]

    def stub(name: str) -> Any:
        return rpc.AuditServiceStub(channel(name))

    yield SimpleNamespace(stub=stub, channel=channel, handlers=handlers, application=application)
    for channel in channels:  # type: ignore[assignment]
        await channel.close()  # type: ignore[attr-defined]
    await application.stop()


async def refusal(call: Any) -> MeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def test_a_peer_on_its_own_authority_is_served_and_known_by_its_certificate(mesh: Any) -> None:
    await mesh.stub("operator").GetCheckpoint(pb.GetCheckpointRequest())
    assert mesh.handlers.seen[0].peer == "operator"


async def test_a_peer_that_the_row_does_not_name_is_refused(mesh: Any) -> None:
    error = await refusal(mesh.stub("gateway").GetCheckpoint(pb.GetCheckpointRequest()))
    assert error.reason is Reason.PEER_NOT_ALLOWED
    assert mesh.handlers.seen == []


async def test_a_method_without_a_row_is_refused_even_to_the_operator(mesh: Any) -> None:
    error = await refusal(mesh.stub("operator").QueryRecords(pb.QueryRecordsRequest()))
    assert error.reason is Reason.METHOD_NOT_FOUND
    assert mesh.handlers.seen == []


async def test_a_peer_that_acts_for_a_caller_needs_the_callers_token_and_scope(mesh: Any, signer: Any) -> None:
    stub = mesh.stub("edge")

    def call(token: str) -> Any:
        return stub.GetCheckpoint(pb.GetCheckpointRequest(), metadata=(("authorization", f"Bearer {token}"),))

    assert (await refusal(stub.GetCheckpoint(pb.GetCheckpointRequest()))).reason is Reason.UNAUTHENTICATED
    assert (await refusal(call("nonsense"))).reason is Reason.TOKEN_MALFORMED
    error = await refusal(call(signer.mint(scope="tools:read")))
    assert (error.reason, error.metadata["required_scopes"]) == (Reason.SCOPE_MISSING, "audit:read")
    await call(signer.mint(scope="audit:read"))
    assert mesh.handlers.seen[-1].caller.subject == "did:web:toolmesh.local:users:alice"


async def test_errors_arrive_whole(mesh: Any) -> None:
    error = await refusal(mesh.stub("operator").GetRecord(pb.GetRecordRequest(name="records/abc")))
    assert error.reason is Reason.NOT_FOUND
    assert error.metadata["name"] == "records/abc"
    assert error.retry_after == 1.5


async def test_an_error_with_more_to_say_than_can_travel_is_still_that_error(mesh: Any) -> None:
    error = await refusal(mesh.stub("operator").GetRecord(pb.GetRecordRequest(name="records/much")))
    assert error.reason is Reason.ARGUMENTS_INVALID
    assert 0 < len(error.violations) < len(MUCH)
    assert int(error.metadata["violations_left_out"]) == len(MUCH) - len(error.violations)


async def test_an_unexpected_error_is_internal_and_reveals_nothing(mesh: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await mesh.stub("operator").GetRecord(pb.GetRecordRequest(name="records/unforeseen"))
    assert from_rpc_error(caught.value).reason is Reason.INTERNAL
    assert "secret" not in repr(caught.value) + str(caught.value.trailing_metadata())


async def test_a_message_that_breaks_its_rules_never_reaches_the_handler(mesh: Any) -> None:
    error = await refusal(mesh.stub("operator").GetRecord(pb.GetRecordRequest(name="nothing like a name")))
    assert error.reason is Reason.INVALID_REQUEST
    assert [v.path for v in error.violations] == ["name"]
    assert mesh.handlers.seen == []


@pytest.mark.parametrize(
    "payload", [b"\xff" * 40, b"\x0a\x05ab", b"\x0a\x02\xc3\x28"], ids=["noise", "cut short", "no UTF-8"]
)
async def test_bytes_that_are_no_message_get_an_envelope(mesh: Any, payload: bytes) -> None:
    channel = mesh.channel("operator")
    error = await refusal(channel.unary_unary(PREFIX + "GetRecord")(payload))
    assert error.reason is Reason.INVALID_REQUEST
    stream = channel.stream_stream(PREFIX + "AppendRecords")()
    await stream.write(payload)
    assert (await refusal(stream.read())).reason is Reason.INVALID_REQUEST
    assert mesh.handlers.seen == []


@pytest.mark.parametrize("size", [MAX_MESSAGE_BYTES + 1, MAX_RECEIVED_BYTES])
async def test_a_message_that_is_too_large_gets_an_envelope(
    mesh: Any, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A client without limits of its own.
    monkeypatch.setattr(client, "MAX_MESSAGE_BYTES", -1)
    channel, payload = mesh.channel("operator"), bytes(size)
    stream = channel.stream_stream(PREFIX + "AppendRecords")()
    await stream.write(payload)
    for call in (channel.unary_unary(PREFIX + "GetRecord")(payload), stream.read()):
        error = await refusal(call)
        assert (error.reason, error.metadata) == (Reason.PAYLOAD_TOO_LARGE, {"limit_bytes": str(MAX_MESSAGE_BYTES)})
    assert mesh.handlers.seen == []


async def test_what_no_server_should_read_is_refused_by_grpc_itself(mesh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_MESSAGE_BYTES", -1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await mesh.channel("operator").unary_unary(PREFIX + "GetRecord")(bytes(MAX_RECEIVED_BYTES + 1))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert mesh.handlers.seen == []


async def test_every_message_of_a_stream_is_checked(mesh: Any) -> None:
    async def batches() -> AsyncIterator[Any]:
        yield pb.AppendRecordsRequest(batch=0, canonical_records=[b""])

    call = mesh.stub("operator").AppendRecords(batches())
    error = await refusal(call.read())
    assert {v.path for v in error.violations} == {"batch", "canonical_records[0]"}


async def test_a_handler_that_takes_too_long_is_stopped_and_the_caller_told_before_its_own_deadline(mesh: Any) -> None:
    request, stub = pb.GetRecordRequest(name="records/forever"), mesh.stub("operator")
    # Several, each with a little more time: a machine that pauses for a moment may keep some from being told, not all.
    calls = [stub.GetRecord(request, timeout=0.5 + n / 4) for n in range(4)]
    ended = [await call.code() for call in calls]
    assert set(ended) == {grpc.StatusCode.DEADLINE_EXCEEDED}
    # The envelope proves that the server answered; gRPC's own expiry carries none.
    assert any(["grpc-status-details-bin" in dict(await call.trailing_metadata() or ()) for call in calls])
    await asyncio.wait_for(mesh.handlers.canceled.wait(), 5)


async def test_a_deadline_shrinks_at_every_hop(mesh: Any) -> None:
    before = time.monotonic()
    await mesh.stub("operator").GetCheckpoint(pb.GetCheckpointRequest(), timeout=3.0)
    assert mesh.handlers.seen[0].deadline < before + 3.0 + 0.5


async def test_an_unknown_method_gets_an_envelope(mesh: Any, pki: Any) -> None:
    identity = pki.of("operator")
    files = SimpleNamespace(tls_cert=identity.cert, tls_key=identity.key, tls_ca=pki.ca)
    async with channel_to("audit", Address("127.0.0.1", mesh.application.server.port), files) as channel:
        error = await refusal(channel.unary_unary("/no.such.Service/Method")(b""))  # type: ignore[arg-type]
    assert error.reason is Reason.METHOD_NOT_FOUND


async def test_a_peer_without_a_mesh_certificate_gets_no_connection(mesh: Any, pki: Any) -> None:
    credentials = grpc.ssl_channel_credentials(pki.ca.read_bytes())
    options = [("grpc.ssl_target_name_override", "audit")]
    address = f"127.0.0.1:{mesh.application.server.port}"
    async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rpc.AuditServiceStub(channel).GetCheckpoint(pb.GetCheckpointRequest(), timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert mesh.handlers.seen == []


class Alone:
    """The chain without a server, asked by a caller that leaves while the refusal is on the way."""

    def __init__(self) -> None:
        self.chain = build_chain(
            policy=POLICY,
            verifier=TokenVerifier(AsyncMock(), issuer="", audience=""),
            trust_domain="test",
            log=Log("test", level="error"),
            tracing=Tracing(),
            sample_ratio=0,
            max_concurrent_calls=1,
        )
        self.methods: Any = ChainedMethods(self.chain)

    async def call(self, method: str) -> None:
        found = self.methods.service(SimpleNamespace(method=method, invocation_metadata=()))
        with pytest.raises(asyncio.CancelledError):
            await found.unary_unary(b"", self)
        self.chain.finish()

    async def abort(self, *_: Any) -> None:
        raise asyncio.CancelledError

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def time_remaining(self) -> None:
        return None

    def peer_identities(self) -> tuple[()]:
        return ()

    def peer_identity_key(self) -> None:
        return None


class Operator(Alone):
    """A caller that may ask, and stays."""

    def peer_identities(self) -> tuple[bytes]:  # type: ignore[override]
        return (b"spiffe://test/operator",)

    def peer_identity_key(self) -> str:  # type: ignore[override]
        return "x509_subject_alternative_name"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    async def abort(self, code: grpc.StatusCode, *_: Any) -> None:
        self.refused = code
        raise grpc.aio.AbortError

    def code(self) -> grpc.StatusCode:
        return self.refused


async def test_a_call_beyond_the_limit_is_refused_until_another_ends() -> None:
    operator, free = Operator(), asyncio.Event()

    async def answer(request: Any, context: Any) -> bytes:
        await free.wait()
        return b"made"

    methods: Any = ChainedMethods(operator.chain)
    methods.add_registered_method_handlers(
        "toolmesh.audit.v1.AuditService", {"GetRecord": grpc.unary_unary_rpc_method_handler(answer, bytes)}
    )
    ask = methods.service(SimpleNamespace(method=PREFIX + "GetRecord", invocation_metadata=())).unary_unary
    first = asyncio.create_task(ask(b"first", operator))
    await asyncio.sleep(0)
    with pytest.raises(grpc.aio.AbortError):
        await ask(b"second", operator)
    assert operator.refused is grpc.StatusCode.RESOURCE_EXHAUSTED
    free.set()
    assert await first == b"made"
    assert await ask(b"second", operator) == b"made"
    operator.chain.finish()


def counted(method: str) -> float:
    return calls_total.labels(method, "CANCELLED").value


async def test_a_caller_who_leaves_while_the_refusal_is_on_the_way_is_counted_all_the_same() -> None:
    alone, method = Alone(), PREFIX + "GetRecord"
    handler = grpc.unary_unary_rpc_method_handler(AsyncMock())  # type: ignore[var-annotated]
    alone.methods.add_registered_method_handlers(PREFIX.strip("/"), {"GetRecord": handler})
    before = counted(method)
    await alone.call(method)
    assert counted(method) == before + 1
    assert calls_in_flight.labels(method).value == 0


async def test_names_that_callers_invent_are_counted_as_one() -> None:
    alone, before = Alone(), counted(UNKNOWN)
    await alone.call("/no.such.Service/One")
    await alone.call("/no.such.Service/Two")
    assert counted(UNKNOWN) == before + 2
    [family] = calls_total.collect()
    assert not [sample for sample in family.samples if "no.such.Service" in sample.labels["method"]]
