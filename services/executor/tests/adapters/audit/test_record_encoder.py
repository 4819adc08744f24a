"""Audit records as the log receives them."""

from __future__ import annotations

from typing import Any

import protovalidate
import pytest
from toolmesh.audit.v1 import audit_record_pb2 as rpb
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.common.v1 import caller_pb2 as cpb

from libs.common.errors import Reason
from libs.common.redaction.declared import Declared
from services.executor.adapters.audit.record_encoder import RecordEncoder
from services.executor.domain.argument_spec import Change
from services.executor.domain.model import Event, PayloadDigest, Record, Status, Verdict
from services.executor.domain.states import State
from services.executor.domain.tool import Contract, Effect, VersionIdentity
from services.executor.tests.samples import a_caller, a_decision, a_record, a_request, a_write_tool
from tests.harness.evidence.records import read


def written(record: Record) -> rpb.AuditRecord:
    batch = pb.AppendRecordsRequest.FromString(RecordEncoder("executor-0").encode(record))
    [message] = read(batch)
    return message


def test_a_record_carries_all_fields() -> None:
    caller = a_caller(
        tier="agent", agent="did:web:a:b", tenant="acme", chain=(("did:web:x:y", "t0"),), expires_at=1_800_000_000.0
    )
    decision = a_decision()
    record = a_record(
        event=Event.TIMED_OUT,
        request=a_request(caller=caller, idempotency_key="k", task_id="task", native_call_id="call-7"),
        tool=a_write_tool(),
        status=Status.TIMEOUT,
        state=State.TIMED_OUT,
        previous_state=State.RUNNING,
        decision=decision,
        arguments=PayloadDigest("sha256:a", b"{}"),
        result=PayloadDigest("sha256:b", b"[]"),
        reason=Reason.TOOL_TIMEOUT,
        latency=1.5,
        follows="01900000-0000",
        replayed=True,
        sandbox="in_process",
        attempt=1,
        cancellation="killed",
    )
    message = written(record)
    assert message.record_id == record.record_id
    assert message.event_class == rpb.EVENT_CLASS_INVOCATION_TIMED_OUT
    assert message.event_time.ToMicroseconds() == int(record.time.timestamp() * 1e6)
    assert (message.trace_id, message.invocation_id) == (record.request.trace_id, record.invocation_id)
    assert message.caller == cpb.Caller(
        subject=caller.subject,
        agent="did:web:a:b",
        tenant="acme",
        tier=cpb.CREDENTIAL_TIER_AGENT,
        token_id="token-1",
        delegation_chain=[cpb.Actor(subject="did:web:x:y", token_id="t0")],
        scopes=["tools:call"],
        session_id="session-1",
        peer="gateway",
        expire_time={"seconds": 1_800_000_000},  # type: ignore[arg-type]
    )
    assert record.tool is not None
    assert (message.tool_version, message.tool_digest) == (record.tool.name, record.tool.digest)
    assert (message.mutation_class, list(message.declared_effects)) == ("write_reversible", ["create orders/*"])
    assert (message.arguments_digest, message.arguments_summary) == ("sha256:a", b"{}")
    assert (message.result_digest, message.result_summary) == ("sha256:b", b"[]")
    assert message.authorization == rpb.AUTHORIZATION_OUTCOME_ALLOW
    assert (message.decision, message.policy_set_version) == (decision.name, "set-1")
    assert list(message.determining_policies) == ["policy0"]
    assert (message.idempotency_key, message.replayed, message.task_id) == ("k", True, "task")
    assert message.native_call_id == "call-7"
    assert (message.status, message.error_reason) == (rpb.RECORD_STATUS_TIMEOUT, Reason.TOOL_TIMEOUT)  # type: ignore[comparison-overlap]
    assert (message.previous_state, message.state) == ("running", "timed_out")
    assert message.latency.ToMilliseconds() == 1500
    assert (message.follows, message.sandbox, message.attempt) == ("01900000-0000", "in_process", 1)
    assert (message.executor_id, message.cancellation) == ("executor-0", "killed")


@pytest.mark.parametrize("event", list(Event))
@pytest.mark.parametrize("status", list(Status))
def test_every_record_satisfies_the_contract_of_the_log(event: Event, status: Status) -> None:
    record = a_record(event=event, status=status, decision=a_decision(Verdict.DENY, policies=("p",) * 100))
    protovalidate.validate(written(record))


@pytest.mark.parametrize(
    ("count", "listed", "more"), [(64, 64, []), (65, 63, ["and 2 more"]), (5000, 63, ["and 4937 more"])]
)
def test_a_truncated_list_states_how_many_are_left_out(count: int, listed: int, more: list[str]) -> None:
    """A change cannot be hidden behind many others."""
    made = tuple(Effect(f"file:a/{nth}", "create", observed=True) for nth in range(count))
    record = written(a_record(effects=made, violations=made))
    protovalidate.validate(record)
    assert list(record.violations) == [f"create {effect.resource}" for effect in made[:listed]] + more
    assert [effect.resource for effect in record.observed_effects] == [effect.resource for effect in made[:256]]
    assert record.observed_effect_count == count


def test_declared_foreseen_and_observed_effects_and_costs_are_apart() -> None:
    change = Effect("file:a/b", "update", True, "sha256:" + "0" * 64, "sha256:" + "f" * 64)
    record = written(
        a_record(
            tool=a_write_tool(),
            effects=(change, Effect("order:7", "create")),
            foreseen=(Effect("file:a/mail bob@example.com", "delete", True, "folder"),),
            costs=(("price", 2), ("compute", 2**62), ("network", 2**62)),
        )
    )
    protovalidate.validate(record)
    assert list(record.declared_effects) == ["create orders/*"]
    observed, reported, foreseen = rpb.EFFECT_SOURCE_OBSERVED, rpb.EFFECT_SOURCE_REPORTED, record.foreseen_effects[0]
    assert list(record.observed_effects) == [
        rpb.RecordedEffect(
            resource="file:a/b",
            operation="update",
            source=observed,
            digest_before=change.before,
            digest_after=change.after,
        ),
        rpb.RecordedEffect(resource="order:7", operation="create", source=reported),
    ]
    assert (foreseen.digest_before, foreseen.digest_after, foreseen.operation) == ("folder", "", "delete")
    assert "bob@example.com" not in foreseen.resource
    assert (record.costs[0].category, record.costs[0].amount_micros) == ("price", 2)
    assert record.cost_micros == 2**63 - 1


def test_a_version_that_may_not_run_is_named_with_its_digest() -> None:
    version = VersionIdentity("tools/core.echo/versions/1.0.0", "sha256:d")
    record = written(a_record(tool=None, unavailable=version, request=a_request(tool="echo")))
    assert (record.tool_version, record.tool_digest) == (version.name, version.digest)


@pytest.mark.parametrize(("version", "shown"), [("", "nobody"), ("^1.2", "nobody@^1.2")])
def test_an_unknown_tool_is_named_as_requested(version: str, shown: str) -> None:
    record = a_record(tool=None, request=a_request(tool="nobody", version=version))
    assert written(record).tool_version == shown


@pytest.mark.parametrize(
    ("name", "longest"), [("idempotency_key", 255), ("task_id", 128), ("native_call_id", 255), ("tool", 320)]
)
def test_names_that_grow_by_redaction_are_truncated(name: str, longest: int) -> None:
    """Otherwise a caller could prevent the record of a call by its choice of names."""
    asked = ("a@b.co," * longest)[:longest]
    record = a_record(request=a_request(**{name: asked}), tool=None)
    assert "a@b.co" not in str(written(record))


def test_concatenated_fragments_are_one_batch() -> None:
    encoder = RecordEncoder("executor-0")
    records = [a_record() for _ in range(3)]
    payload = pb.AppendRecordsRequest(batch=7).SerializeToString() + b"".join(encoder.encode(r) for r in records)
    batch = pb.AppendRecordsRequest.FromString(payload)
    assert batch.batch == 7
    assert [message.record_id for message in read(batch)] == [record.record_id for record in records]


@pytest.mark.parametrize("other", [{"token_id": "other"}, {"session_id": "other"}, {"peer": "edge"}])
def test_cached_callers_are_distinct(other: dict[str, Any]) -> None:
    encoder = RecordEncoder("executor-0")
    encoder.encode(a_record())
    caller = a_caller(**other)
    [message] = read(pb.AppendRecordsRequest.FromString(encoder.encode(a_record(request=a_request(caller=caller)))))
    assert (message.caller.token_id, message.caller.session_id, message.caller.peer) == (
        caller.token_id,
        caller.session_id,
        caller.peer,
    )


def test_changes_of_sensitive_fields_hide_their_names() -> None:
    marked = {"x-sensitivity": "pii"}
    schema = {"properties": {"ages": {"propertyNames": marked}, "home": marked, "list": {"items": {"properties": {}}}}}
    contract = Contract(lambda value: (), Declared.of(schema, ["/people/*"]))
    paths = ["/ages/ada", "/home/ada", "/list/0/a~1b", "/people/ada/age", "/7"]
    record = a_record(
        tool=a_write_tool(input=contract),
        changes=tuple(Change(path, "coercion", "string to integer") for path in paths),
    )
    told = [change.split(" ")[1] for change in written(record).argument_changes]
    assert told == ["/ages", "/home", "/list/0/a~1b", "/people/ada", "/7"]
