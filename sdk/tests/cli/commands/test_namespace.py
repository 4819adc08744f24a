"""`toolmesh namespace`: what is asked of the mesh, by whom, and what is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from toolmesh.registry.v1 import namespace_service_pb2 as pb
from toolmesh.registry.v1 import tool_pb2
from toolmesh_sdk import Reason

from libs.common.errors import MeshError

ALICE, BOB = "did:web:x:alice", "did:web:x:bob"
ACME = pb.Namespace(name="namespaces/acme", provider="Acme", owner=ALICE, delegates=[BOB], etag="2a")


def test_the_operator_gives_a_namespace_away_before_its_first_tool(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("ClaimNamespace", pb.ClaimNamespaceResponse(namespace=ACME))
    ran = toolmesh("namespace", "claim", "acme", "--owner", ALICE, "--provider", "Acme")
    assert ran.exit_code == 0
    assert ran.stdout.splitlines()[0] == f"acme belongs to {ALICE}, provider Acme  etag 2a"
    assert BOB in ran.stdout
    [call] = mesh.of("ClaimNamespace")
    assert (call.request.namespace, call.request.owner, call.request.provider) == ("acme", ALICE, "Acme")
    assert call.peer
    assert "authorization" not in call.metadata


def test_a_namespace_that_has_another_owner_stays_with_them(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("ClaimNamespace", MeshError(Reason.ALREADY_EXISTS))
    ran = toolmesh("namespace", "claim", "acme", "--owner", BOB, "--provider", "Bob", "--json")
    assert (ran.exit_code, json.loads(ran.stdout)["error"]["reason"]) == (1, "ALREADY_EXISTS")


def test_a_namespace_is_transferred_by_its_resource_name(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("TransferNamespace", pb.TransferNamespaceResponse(namespace=ACME))
    assert toolmesh("namespace", "transfer", "acme", "--owner", ALICE, "--etag", "29").exit_code == 0
    [call] = mesh.of("TransferNamespace")
    assert (call.request.name, call.request.owner, call.request.etag) == ("namespaces/acme", ALICE, "29")


@pytest.mark.parametrize(("command", "rpc"), [("delegate", "AddDelegate"), ("undelegate", "RemoveDelegate")])
def test_delegates_are_the_operators_or_the_owners_to_choose(toolmesh: Any, mesh: Any, command: str, rpc: str) -> None:
    mesh.answer(rpc, getattr(pb, f"{rpc}Response")(namespace=ACME))
    assert toolmesh("namespace", command, "acme", BOB).exit_code == 0
    assert toolmesh("namespace", command, "namespaces/acme", BOB, "--token", "t").exit_code == 0
    operator, owner = mesh.of(rpc)
    assert [(call.request.name, call.request.subject) for call in (operator, owner)] == [("namespaces/acme", BOB)] * 2
    assert operator.peer
    assert owner.metadata["authorization"] == "Bearer t"


def test_an_alias_is_moved_from_one_tool_to_another(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("MoveAlias", pb.MoveAliasResponse(tool=tool_pb2.Tool(name="tools/acme.new")))
    ran = toolmesh("namespace", "move-alias", "acme.mail", "--from", "acme.old", "--to", "acme.new", "-r", "better")
    assert ran.stdout == "acme.mail points to acme.new\n"
    request = mesh.of("MoveAlias")[0].request
    assert (request.alias, request.from_tool, request.to_tool, request.reason) == (
        *("acme.mail", "acme.old"),
        *("acme.new", "better"),
    )


def test_one_is_shown_and_all_are_listed_page_by_page(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("GetNamespace", pb.GetNamespaceResponse(namespace=ACME))
    other = pb.Namespace(name="namespaces/core", provider="Toolmesh", owner="operator")
    page = pb.ListNamespacesResponse
    mesh.answer("ListNamespaces", page(namespaces=[ACME], next_page_token="p2"), page(namespaces=[other]))
    shown = json.loads(toolmesh("namespace", "show", "acme", "--json").stdout)["namespace"]
    assert (shown["owner"], shown["delegates"]) == (ALICE, [BOB])
    lines = [line.split() for line in toolmesh("namespace", "list").stdout.splitlines()]
    assert lines[1:] == [["acme", "Acme", ALICE, "1"], ["core", "Toolmesh", "operator", "0"]]
    assert [call.request.page_token for call in mesh.of("ListNamespaces")] == ["", "p2"]
    assert mesh.of("GetNamespace")[0].metadata["authorization"]


@pytest.mark.parametrize("arguments", [("claim", "acme"), ("claim", "acme", "--owner", ALICE), ("delegate", "acme")])
def test_what_is_missing_is_two(toolmesh: Any, mesh: Any, arguments: tuple[str, ...]) -> None:
    assert toolmesh("namespace", *arguments).exit_code == 2
    assert mesh.seen == []
