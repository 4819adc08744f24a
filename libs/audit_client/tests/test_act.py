"""The record of an act: what the log accepts, who acted, and nothing secret."""

from __future__ import annotations

from contextvars import copy_context
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import audit_service_pb2 as pb

from libs.audit_client.act import Act, ActEncoder, ActKind
from libs.common.auth.identity import Identity
from libs.common.call_context import Call, enter
from libs.common.trace_context import continue_trace
from tests.harness.evidence.records import read

NOW = datetime(2026, 11, 17, 9, 30, 0, 5, tzinfo=UTC)
ALICE = Identity(
    "did:web:x:alice", "token-1", 1_800_000_000.0, tenant="acme", scopes=frozenset({"a:b"}), tier="service"
)


def recorded(act: Act, **call: Any) -> record_pb.AuditRecord:
    """Return the record that readers of the log get; raise what the log would answer."""

    def encode() -> bytes:
        if call:
            enter(Call("/method", continue_trace(None), **call))
        return ActEncoder("authz").encode(act).form

    form = copy_context().run(encode)
    [record] = read(pb.AppendRecordsRequest(batch=1, canonical_records=[form]), "authz")
    return record


def an_act(**changes: Any) -> Act:
    fields: dict[str, Any] = {"kind": ActKind.TOKEN_ISSUED, "resource": "tokens/t", "time": NOW}
    return Act(**fields | changes)


def test_every_kind_is_an_event_class_of_the_contract() -> None:
    classes = {name.removeprefix("EVENT_CLASS_").lower() for name in record_pb.EventClass.DESCRIPTOR.values_by_name}
    assert {kind.value for kind in ActKind} <= classes
    for kind in ActKind:
        assert recorded(an_act(kind=kind)).event_class == record_pb.EventClass.Value(f"EVENT_CLASS_{kind.name}")


def test_the_log_takes_what_callers_can_put_into_an_act() -> None:
    hostile = '\0\u2028"\\ü😀' * 4000
    act = an_act(resource="tokens/" + hostile, reason=hostile, details={"subject": hostile, "count": 2**53})
    record = recorded(act, peer="edge", identity=ALICE)
    assert len(record.act.resource) == 512
    assert (record.result_summary, record.result_digest[:7]) == (b"", "sha256:")
    assert recorded(an_act(details={"scopes": ["ü"], "passed": False, "tenant": ""})).result_summary == (
        '{"passed":false,"scopes":["ü"]}'.encode()
    )


def test_a_record_names_principal_peer_and_trace() -> None:
    record = recorded(an_act(), peer="edge", identity=ALICE)
    caller = record.caller
    assert (caller.subject, caller.tenant, caller.token_id, caller.peer) == (
        "did:web:x:alice",
        "acme",
        "token-1",
        "edge",
    )
    assert len(record.trace_id) == 32
    assert recorded(an_act(), peer="operator").caller.subject == ""
    assert recorded(an_act(subject="did:web:x:bob", tenant="b"), peer="edge").caller.tenant == "b"
    assert not recorded(an_act()).HasField("caller"), "an act of the service itself"


def test_reasons_are_redacted() -> None:
    assert "AKIAIOSFODNN7EXAMPLE" not in recorded(an_act(reason="key AKIAIOSFODNN7EXAMPLE")).act.reason


def test_the_certificate_of_the_peer_is_named() -> None:
    pem = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    call = Call("/method", continue_trace(None), peer="operator")
    call.auth_context = SimpleNamespace(auth=lambda: {"x509_pem_cert": [pem]}).auth

    def encode() -> bytes:
        enter(call)
        return ActEncoder("authz").encode(an_act()).form

    assert b'"certificate_thumbprint":"' in copy_context().run(encode)
