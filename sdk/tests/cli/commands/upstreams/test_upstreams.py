"""`toolmesh upstreams show`: what the registry and an executor say about a server."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1 import circuit_pb2 as cpb
from toolmesh.executor.v1 import circuit_service_pb2 as circuits_pb
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb
from toolmesh.registry.v1 import upstream_pb2 as upb
from toolmesh.registry.v1 import upstream_service_pb2 as pb
from toolmesh_sdk import Reason

from libs.common.errors import MeshError

TIME = Timestamp()
TIME.FromDatetime(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
UPSTREAM = upb.Upstream(
    name="upstreams/shop",
    endpoint=upb.UpstreamEndpoint(grpc=upb.GrpcEndpoint(address="shop:443")),
    state=upb.UPSTREAM_STATE_READY,
    update_time=TIME,
    last_answer_time=TIME,
)
OPEN = cpb.Circuit(
    name="circuits/shop/shop",
    state=cpb.CIRCUIT_STATE_OPEN,
    state_time=TIME,
    retry_time=TIME,
    calls=9,
    failed_calls=5,
    shared=True,
    transitions=[cpb.CircuitTransition(time=TIME, before=cpb.CIRCUIT_STATE_CLOSED, after=cpb.CIRCUIT_STATE_OPEN)],
    rate_limits=[cpb.ServiceRateLimit(party="tenant acme", end_time=TIME)],
)
ALONE = cpb.Circuit(name="circuits/shop/other", state=cpb.CIRCUIT_STATE_CLOSED)


@pytest.fixture(autouse=True)
def known(mesh: Any) -> None:
    mesh.answer("GetUpstream", pb.GetUpstreamResponse(upstream=UPSTREAM))


def test_an_upstream_is_shown_with_the_circuits_of_all_pages(toolmesh: Any, mesh: Any) -> None:
    pages = [
        circuits_pb.ListCircuitsResponse(circuits=[OPEN], next_page_token="more"),
        circuits_pb.ListCircuitsResponse(circuits=[ALONE]),
    ]
    mesh.answer("ListCircuits", *pages)
    ran = toolmesh("upstreams", "show", "shop")
    assert ran.exit_code == 0
    moment = "2026-01-02T03:04:05.000Z"
    lines = ran.stdout.splitlines()
    [opened] = [line for line in lines if line.startswith("shop/shop ") and "open" in line and "5" in line]
    assert opened.count(moment) == 2
    assert opened.endswith("all executors")
    assert [line.split()[1] for line in lines if line.startswith("shop/other")] == ["closed"]
    assert f"shop/shop: closed -> open  {moment}" in lines
    assert [moment in line for line in lines if "tenant acme" in line] == [True]
    assert [line.count(moment) for line in lines if line.startswith("last answer")] == [2]
    first, second = mesh.of("ListCircuits")
    assert (first.request.namespace, second.request.page_token) == ("shop", "more")
    # The certificate of the operator is the authority.
    assert "authorization" not in first.metadata


@pytest.mark.parametrize(("slow", "shown"), [(Duration(nanos=800_000_000), ["800 ms"]), (None, [])])
def test_what_counts_as_slow_is_shown(toolmesh: Any, mesh: Any, slow: Duration | None, shown: list[str]) -> None:
    upstream = upb.Upstream()
    upstream.CopyFrom(UPSTREAM)
    if slow is not None:
        upstream.slow_call_time.CopyFrom(slow)
    mesh.answer("GetUpstream", *[pb.GetUpstreamResponse(upstream=upstream)] * 2)
    mesh.answer("ListCircuits", *[circuits_pb.ListCircuitsResponse()] * 2)
    lines = toolmesh("upstreams", "show", "shop").stdout.splitlines()
    assert [line for line in lines if "slow" in line] == [f"calls of more than {each} are slow" for each in shown]
    document = json.loads(toolmesh("upstreams", "show", "shop", "--json").stdout)["upstream"]
    assert document.get("slow_call_time") == (0.8 if shown else None)


def test_programs_get_the_circuits_as_json(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("ListCircuits", circuits_pb.ListCircuitsResponse(circuits=[OPEN]))
    [circuit] = json.loads(toolmesh("upstreams", "show", "shop", "--json").stdout)["circuits"]
    assert (circuit["state"], circuit["failed_calls"], circuit["shared"]) == ("open", 5, True)
    assert circuit["transitions"][0]["after"] == "open"
    assert circuit["rate_limits"][0]["party"] == "tenant acme"


def test_what_the_registry_knows_is_shown_while_no_executor_answers(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("ListCircuits", MeshError(Reason.INTERNAL))
    ran = toolmesh("upstreams", "show", "shop")
    assert (ran.exit_code, "shop is ready" in ran.stdout, "INTERNAL" in ran.stderr) == (0, True, True)
    shown = json.loads(toolmesh("upstreams", "show", "shop", "--json").stdout)
    assert (shown["upstream"]["state"], shown["circuits"]) == ("ready", None)


def test_the_table_says_which_secrets_and_whether_an_approval_a_call_needs(toolmesh: Any, mesh: Any) -> None:
    upstream = upb.Upstream()
    upstream.CopyFrom(UPSTREAM)
    version, state = "tools/shop.{}/versions/1.0.0", upb.UPSTREAM_TOOL_STATE_ADMITTED
    upstream.tools.add(
        native_name="read",
        state=state,
        tool_version=version.format("read"),
        mutation_class=mpb.MUTATION_CLASS_READ_ONLY,
        secrets=["secret://shop_key"],
    )
    upstream.tools.add(
        native_name="free",
        state=state,
        tool_version=version.format("free"),
        mutation_class=mpb.MUTATION_CLASS_READ_ONLY,
    )
    upstream.tools.add(
        native_name="write",
        state=state,
        tool_version=version.format("write"),
        mutation_class=mpb.MUTATION_CLASS_WRITE_IRREVERSIBLE,
        secrets=["secret://shop_key", "secret://other_key"],
    )
    mesh.answer("GetUpstream", pb.GetUpstreamResponse(upstream=upstream))
    mesh.answer("ListCircuits", circuits_pb.ListCircuitsResponse())
    lines = toolmesh("upstreams", "show", "shop").stdout.splitlines()
    needs = {
        line.split()[0]: line.partition("@1.0.0")[2].split(maxsplit=1)[1].strip() for line in lines if "@1" in line
    }
    assert needs == {
        "read": "secret://shop_key",
        "free": "nothing",
        "write": "secret://shop_key, secret://other_key, approval",
    }
