"""The answer of a call, its record and the explanation of its decision agree, for warm and for cold decisions."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import audit_service_pb2 as audit_pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as audit_rpc
from toolmesh.authz.v1 import policy_service_pb2 as policy_pb
from toolmesh.authz.v1 import policy_service_pb2_grpc as policy_rpc

from tests.harness.mesh import Mesh


def calls_in_random_order(rng: random.Random) -> list[tuple[str, dict[str, Any]]]:
    """Return every kind of token with every text and session, as the parameters of calls."""
    kinds, texts, sessions = ("plain", "short", "bound", "resources"), ("ab", "abc", "abcd"), ("", "mine", "yours")
    calls: list[tuple[str, dict[str, Any]]] = [
        (kind, {"tool": "core.echo", "arguments": {"text": text}} | ({"session_id": session} if session else {}))
        for kind, text, session in product(kinds, texts, sessions)
    ]
    rng.shuffle(calls)
    return calls


def outcome_word(outcome: record_pb.AuthorizationOutcome.ValueType) -> str:
    return record_pb.AuthorizationOutcome.Name(outcome).removeprefix("AUTHORIZATION_OUTCOME_").lower()


def test_answer_record_and_explanation_agree(mesh: Mesh) -> None:
    tokens = {
        "plain": mesh.token(),
        "short": mesh.token(constraints=['core.echo={"properties":{"text":{"maxLength":3}}}']),
        "bound": mesh.token(session="mine"),
        "resources": mesh.token(resources="file:/srv/*"),
    }
    seed = random.randrange(10**9)
    outcomes = set()
    with mesh.edge_channel() as channel:
        records, policies = audit_rpc.AuditServiceStub(channel), policy_rpc.PolicyServiceStub(channel)
        for kind, params in calls_in_random_order(random.Random(seed)):
            answer = mesh.rpc("tools.invoke", params, token=tokens[kind]).json()
            refused = answer.get("error", {}).get("data")
            outcome = "allow" if refused is None else "deny"
            invocation = (answer["result"] if refused is None else refused)["invocation_id"]
            credentials = (("authorization", f"Bearer {tokens[kind]}"),)
            found = records.QueryRecords(
                audit_pb.QueryRecordsRequest(filter=audit_pb.RecordFilter(invocation_id=invocation)),
                metadata=credentials,
                timeout=60,
            ).records
            decisions = {each.record.decision for each in found if each.record.decision}
            assert len(decisions) == 1, (seed, params, found)
            [name] = decisions
            asked = policy_pb.ExplainDecisionRequest(name=name)
            explained = policies.ExplainDecision(asked, metadata=credentials, timeout=60)
            words = {outcome_word(each.record.authorization) for each in found}
            assert (words, explained.decision.WhichOneof("outcome")) == ({outcome}, outcome), (seed, kind, params)
            if refused is not None:
                assert refused["metadata"].get("decision", name) == name
                assert explained.call.invocation_id == invocation, (seed, kind, params)
            outcomes.add((kind, outcome))
    assert {("plain", "allow"), ("short", "allow"), ("short", "deny"), ("bound", "deny")} <= outcomes
