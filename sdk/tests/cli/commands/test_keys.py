"""`toolmesh keys`: what is asked of the mesh, by whom, and what is shown."""

from __future__ import annotations

import json
from typing import Any

from toolmesh.executor.v1 import idempotency_key_pb2 as kpb
from toolmesh.executor.v1 import key_service_pb2 as pb
from toolmesh_sdk import Reason

from libs.common.errors import MeshError

KEY = kpb.IdempotencyKey(
    name="keys/ab12",
    tool="acme.pay",
    subject="did:web:x:alice",
    key="order-7",
    state=kpb.KEY_STATE_UNKNOWN,
    unresolved_invocations=["i-1"],
)


def test_keys_to_be_settled_are_listed_page_by_page(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("ListKeys", pb.ListKeysResponse(keys=[KEY], next_page_token="more"), pb.ListKeysResponse(keys=[KEY]))
    ran = toolmesh("keys", "list", "--tool", "acme.pay", "--key-state", "unknown")
    assert (ran.exit_code, ran.stdout.count("keys/ab12")) == (0, 2)
    assert "unknown" in ran.stdout
    first, second = mesh.of("ListKeys")
    assert list(first.request.states) == [kpb.KEY_STATE_UNKNOWN]
    assert (first.request.tool, second.request.page_token) == ("acme.pay", "more")
    assert "authorization" not in first.metadata


def test_a_key_is_shown_with_the_invocations_that_may_have_run(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("GetKey", pb.GetKeyResponse(key=KEY))
    ran = toolmesh("keys", "show", "keys/ab12", "--json")
    assert json.loads(ran.stdout)["key"]["unresolved_invocations"] == ["i-1"]


def test_a_key_is_settled_by_either_finding(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("SettleKey", pb.SettleKeyResponse(key=KEY, record="records/r"))
    found = toolmesh("keys", "settle", "keys/ab12", "--result", '{"paid":true}', "--reason", "ledger")
    assert (found.exit_code, "records/r" in found.stdout) == (0, True)
    assert toolmesh("keys", "settle", "keys/ab12", "--absent", "--reason", "ledger").exit_code == 0
    happened, absent = mesh.of("SettleKey")
    assert (happened.request.result, happened.request.reason) == (b'{"paid":true}', "ledger")
    assert absent.request.WhichOneof("outcome") == "absent"


def test_a_finding_is_exactly_one_and_the_mesh_may_refuse_it(toolmesh: Any, mesh: Any) -> None:
    for finding in ([], ["--absent", "--result", "{}"], ["--result", "{"]):
        assert toolmesh("keys", "settle", "keys/ab12", "--reason", "r", *finding).exit_code == 2
    assert toolmesh("keys", "list", "--key-state", "lost").exit_code == 2
    mesh.answer("SettleKey", MeshError(Reason.FAILED_PRECONDITION))
    ran = toolmesh("keys", "settle", "keys/ab12", "--absent", "--reason", "r", "--json")
    assert json.loads(ran.stdout)["error"]["reason"] == "FAILED_PRECONDITION"
