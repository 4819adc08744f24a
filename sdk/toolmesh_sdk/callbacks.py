"""Lists the deliveries to callbacks of invocations, and sends them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolmesh.common.v1.error_table import Reason
from toolmesh.executor.v1 import callback_delivery_pb2 as dpb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh.executor.v1.invocation_service_pb2_grpc import InvocationServiceStub

from toolmesh_sdk.client import Client
from toolmesh_sdk.errors import error_for_reason

_MAX_PAGE_SIZE = 100
_STATE = "CALLBACK_DELIVERY_STATE_"
_SUFFIX = "/callbackDelivery"


def delivery_state(delivery: dpb.CallbackDelivery) -> str:
    """Return the state in lower case, such as `failed`."""
    return str(dpb.CallbackDeliveryState.Name(delivery.state)).removeprefix(_STATE).lower()


class Callbacks:
    """Works with deliveries through a client, which it does not close. Every failure is a ToolmeshError.

    An invocation has one delivery, so both are named alike: `invocations/...`, with or without `/callbackDelivery`.
    """

    def __init__(self, client: Client) -> None:
        self._transport = client.transport
        self._stub = InvocationServiceStub(self._transport.channel)

    def list(
        self, *, states: Sequence[str] = (), number: int = 100, timeout: float | None = None
    ) -> Iterator[dpb.CallbackDelivery]:
        """Yield deliveries of the caller's invocations, the newest end first. Raises ValueError for an unknown
        state."""
        request = pb.ListCallbackDeliveriesRequest(
            states=[dpb.CallbackDeliveryState.Value(_STATE + state.upper()) for state in states],
            page_size=min(number, _MAX_PAGE_SIZE),
        )
        while number > 0:
            page = self._transport.unary(self._stub.ListCallbackDeliveries, request, timeout, repeatable=True)
            yield from page.deliveries[:number]
            number -= len(page.deliveries)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def get(self, name: str, *, timeout: float | None = None) -> dpb.CallbackDelivery:
        """Return the delivery of an invocation that ended. Raises NotFoundError for one without."""
        request = pb.ListCallbackDeliveriesRequest(invocation=name.removesuffix(_SUFFIX))
        page = self._transport.unary(self._stub.ListCallbackDeliveries, request, timeout, repeatable=True)
        if not page.deliveries:
            message = f"{request.invocation} has no delivery: it has no callback, has not ended, or is not yours."
            raise error_for_reason(Reason.NOT_FOUND, message=message, answered=True)
        return page.deliveries[0]

    def redeliver(self, name: str, *, timeout: float | None = None) -> dpb.CallbackDelivery:
        """Send a report again, with all its tries, and return its delivery."""
        request = pb.RedeliverCallbackRequest(name=name.removesuffix(_SUFFIX) + _SUFFIX)
        return self._transport.unary(self._stub.RedeliverCallback, request, timeout, repeatable=True).delivery
