"""Messages of KeyService: which keys are asked for, by whom, and how they are shown."""

from __future__ import annotations

from datetime import UTC, datetime

from toolmesh.executor.v1 import idempotency_key_pb2 as kpb
from toolmesh.executor.v1 import key_service_pb2 as pb

from libs.common.auth.identity import Identity
from libs.common.call_context import Call
from libs.common.trace_context import TraceContext
from services.executor.convert.keys import filter_of, key_message, settlement_of
from services.executor.domain.idempotency.stored_key import SETTLEABLE, KeyState, StoredKey

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def a_call(identity: Identity | None = None) -> Call:
    return Call("m", TraceContext("a" * 32, "b" * 16, "", False), peer="operator", identity=identity)


def test_a_listing_is_by_default_of_keys_to_be_settled_and_of_the_callers_tenant() -> None:
    ada = Identity(subject="ada", token_id="t", expires_at=1.0, tenant="acme")
    everything = filter_of(pb.ListKeysRequest(), a_call())
    assert (everything.states, everything.tenant, everything.tool) == (SETTLEABLE, None, "")
    named = filter_of(pb.ListKeysRequest(tool="tools/echo", states=[kpb.KEY_STATE_FAILED]), a_call(ada))
    assert (named.states, named.tenant, named.tool) == ((KeyState.FAILED,), "acme", "core.echo")


def test_a_settlement_names_the_finding_and_who_made_it() -> None:
    absent = settlement_of(pb.SettleKeyRequest(name="keys/a", absent=pb.EffectAbsent(), reason="r"), a_call())
    assert (absent.result, absent.caller.peer, absent.caller.subject, absent.tenant) == (None, "operator", "", None)
    ada = Identity(subject="ada", token_id="t", expires_at=1.0, tenant="acme")
    found = settlement_of(pb.SettleKeyRequest(name="keys/a", result=b"{}", reason="r"), a_call(ada))
    assert (found.result, found.caller.subject, found.tenant) == (b"{}", "ada", "acme")


def test_a_key_is_shown_with_its_state_and_its_invocations() -> None:
    key = StoredKey("keys/a", "acme", "core.b", "ada", "s", "k", KeyState.UNRESOLVED, "i2", ("i1", "i2"), "d", NOW, NOW)
    message = key_message(key)
    assert (message.state, list(message.unresolved_invocations)) == (kpb.KEY_STATE_UNRESOLVED, ["i1", "i2"])
    assert message.create_time.ToDatetime(tzinfo=UTC) == NOW
