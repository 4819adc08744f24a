"""`toolmesh callbacks`: what is asked of the mesh, and what is shown."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1 import callback_delivery_pb2 as dpb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh_sdk import Reason
from toolmesh_sdk.callbacks import delivery_state

from libs.common.errors import MeshError
from libs.common.rpc.status import envelope as error_envelope

NAME = "invocations/00000000-0000-0000-0000-000000000001"
FAILED = dpb.CallbackDelivery(
    name=f"{NAME}/callbackDelivery",
    state=dpb.CALLBACK_DELIVERY_STATE_FAILED,
    tries=8,
    detail="http_503",
    end_time=Timestamp(seconds=1),
    error=error_envelope(MeshError(Reason.WEBHOOK_FAILED)),
)
PENDING = dpb.CallbackDelivery(name=FAILED.name, state=dpb.CALLBACK_DELIVERY_STATE_PENDING)


def test_deliveries_are_listed_page_by_page(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("ListCallbackDeliveries", pb.ListCallbackDeliveriesResponse(deliveries=[FAILED]))
    ran = toolmesh("callbacks", "list", "--in-state", "failed")
    assert ran.exit_code == 0
    assert all(words in ran.stdout for words in (NAME, "failed", "8", "http_503"))
    [asked] = mesh.of("ListCallbackDeliveries")
    assert list(asked.request.states) == [dpb.CALLBACK_DELIVERY_STATE_FAILED]
    listed = json.loads(toolmesh("callbacks", "list", "--json").stdout)["deliveries"]
    assert [each["name"] for each in listed] == [FAILED.name]
    assert toolmesh("callbacks", "list", "--in-state", "lost").exit_code == 2
    assert delivery_state(FAILED) == "failed"


def test_a_delivery_is_shown_and_repeated_by_the_name_of_its_invocation(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("ListCallbackDeliveries", pb.ListCallbackDeliveriesResponse(deliveries=[FAILED]))
    shown = toolmesh("callbacks", "show", NAME)
    assert (shown.exit_code, "E3704" in shown.stdout) == (0, True)
    assert mesh.of("ListCallbackDeliveries")[0].request.invocation == NAME
    mesh.answer("RedeliverCallback", pb.RedeliverCallbackResponse(delivery=PENDING))
    for name in (NAME, FAILED.name):
        assert "pending" in toolmesh("callbacks", "redeliver", name).stdout
    assert {asked.request.name for asked in mesh.of("RedeliverCallback")} == {FAILED.name}
    mesh.answer("ListCallbackDeliveries", pb.ListCallbackDeliveriesResponse())
    assert toolmesh("callbacks", "show", NAME).exit_code not in (0, 2)
