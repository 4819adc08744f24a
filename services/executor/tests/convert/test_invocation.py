"""Messages to the domain and back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import result_envelope_pb2 as epb

from libs.common.auth.identity import Identity
from libs.common.auth.tokens import CLOCK_SKEW
from libs.common.call_context import Call
from libs.common.trace_context import continue_trace
from services.executor.convert.invocation import envelope_of, request_of, response_of, result_of
from services.executor.domain.argument_spec import Change
from services.executor.domain.model import CallWarning, Source
from services.executor.domain.tool import Deprecation
from services.executor.tests.samples import a_result

IDENTITY = Identity(
    subject="did:web:a:b",
    token_id="t1",
    expires_at=1000.0,
    tier="agent",
    agent="did:web:c:d",
    tenant="acme",
    scopes=frozenset({"b", "a"}),
    chain=(("did:web:x:y", "t0"),),
    session_id="of-the-token",
)


def test_a_request_is_read_whole() -> None:
    call = Call("/m", continue_trace(None), peer="gateway", identity=IDENTITY, deadline=12.5)
    message = pb.InvokeRequest(
        tool="echo", version="^1", arguments=b"{}", idempotency_key="k", task_id="t", native_call_id="n"
    )
    message.session_id = "of-the-token"
    message.tool_digest = "sha256:" + "a" * 64
    request = request_of(message, call)
    assert (request.tool, request.version, request.arguments) == ("echo", "^1", b"{}")
    assert (request.idempotency_key, request.task_id, request.deadline) == ("k", "t", 12.5)
    assert (request.native_call_id, request.tool_digest) == ("n", message.tool_digest)
    assert request.trace_id == call.trace.trace_id
    caller = request.caller
    assert (caller.subject, caller.token_id, caller.tier, caller.agent) == ("did:web:a:b", "t1", "agent", "did:web:c:d")
    assert (caller.tenant, caller.scopes, caller.chain) == ("acme", ("a", "b"), (("did:web:x:y", "t0"),))
    assert (caller.expires_at, caller.authority_ends) == (1000.0, 1000.0 + CLOCK_SKEW)
    assert (caller.session_id, caller.other_session, caller.peer) == ("of-the-token", False, "gateway")


@pytest.mark.parametrize(
    ("bound", "named", "session", "other"),
    [
        ("", "", "", False),
        ("", "s", "s", False),
        ("of-the-token", "", "of-the-token", False),
        ("of-the-token", "of-the-token", "of-the-token", False),
        # What is refused is on record where it came from, not where it wanted to be.
        ("of-the-token", "s", "of-the-token", True),
    ],
)
def test_a_bound_token_stays_in_its_session(bound: str, named: str, session: str, other: bool) -> None:
    call = Call("/m", continue_trace(None), identity=replace(IDENTITY, session_id=bound))
    caller = request_of(pb.InvokeRequest(tool="echo", session_id=named), call).caller
    assert (caller.session_id, caller.other_session) == (session, other)


@pytest.mark.parametrize(
    "deprecation",
    [
        None,
        Deprecation(None, "", ""),
        Deprecation(datetime(2027, 1, 1, tzinfo=UTC), "tools/core.x/versions/2.0.0", "url"),
        Deprecation(None, "", "", datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_result_survives_its_envelope(deprecation: Deprecation | None) -> None:
    result = a_result(
        changes=(Change("/a", "coercion", "integer"),),
        evidence=("r1",),
        policies=("p",),
        replayed=True,
        source=Source.REPLAY,
        deprecation=deprecation,
        warnings=(CallWarning("look_alike", "is easily taken for another", "tools/acme.x"),),
    )
    envelope = envelope_of(result)
    assert result_of(epb.ResultEnvelope.FromString(envelope.SerializeToString())) == result
    assert response_of(result).result == envelope


def test_an_envelope_says_what_the_contract_promises() -> None:
    envelope = envelope_of(a_result())
    assert envelope.status == epb.RESULT_STATUS_SUCCEEDED
    assert envelope.redaction_state == epb.REDACTION_STATE_NONE
    assert envelope.execution.result_size_bytes == len(envelope.structured_content)
    assert envelope.execution.total.ToMilliseconds() == 250
    assert not envelope.HasField("deprecation")
