"""Converts messages of checkpoints and callbacks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1 import callback_delivery_pb2 as dpb
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb

from libs.common import page_tokens
from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import envelope
from services.executor.domain.callbacks.delivery import Delivery, DeliveryFilter, DeliveryStatus
from services.executor.domain.checkpoints import errors
from services.executor.domain.checkpoints.checkpoint import Checkpoint, CheckpointKind
from services.executor.domain.jobs.job import Callback, JobOwner

_KINDS = {kind: ipb.CheckpointKind.Value(f"CHECKPOINT_KIND_{kind.name}") for kind in CheckpointKind}
_STATUSES = {
    status: dpb.CallbackDeliveryState.Value(f"CALLBACK_DELIVERY_STATE_{status.name}") for status in DeliveryStatus
}
_STATUS_NAMES = {number: status for status, number in _STATUSES.items()}
# Numbers of checkpoints are 64 bits.
_MAX_NUMBER = 2**63 - 1


def callback_of(message: pb.StartInvocationRequest) -> Callback | None:
    """Return where the end is to be reported; None for nowhere."""
    if not message.HasField("callback"):
        return None
    return Callback(message.callback.url, message.callback.secret)


def checkpoint_name_of(name: str) -> tuple[str, int | None]:
    """Return the invocation and the number of a checkpoint's resource name; None for a number that none has."""
    _, invocation_id, _, number = name.split("/", 3)
    return invocation_id, int(number) if number.isascii() and number.isdigit() and int(number) <= _MAX_NUMBER else None


def resume_number_of(message: pb.ResumeInvocationRequest) -> int | None:
    """Return the number of the checkpoint to resume from; None for the newest. Raises CHECKPOINT_NOT_FOUND."""
    name = message.checkpoint.name
    if not name:
        return None
    if not name.startswith(f"{message.name}/checkpoints/"):
        raise errors.checkpoint_not_found(name)
    _, number = checkpoint_name_of(name)
    if number is None:
        raise errors.checkpoint_not_found(name)
    return number


def checkpoint_of(checkpoint: Checkpoint) -> ipb.Checkpoint:
    """Return a checkpoint as a message."""
    return ipb.Checkpoint(
        name=checkpoint.name,
        kind=_KINDS[checkpoint.kind],
        label=checkpoint.label,
        number=checkpoint.number,
        state_bytes=checkpoint.state_bytes,
        stored_bytes=checkpoint.stored_bytes,
        parent_number=checkpoint.parent_number,
        digest=checkpoint.digest,
        create_time=_timestamp(checkpoint.create_time),
        expire_time=_timestamp(checkpoint.expire_time),
    )


def delivery_of(delivery: Delivery) -> dpb.CallbackDelivery:
    """Return a delivery as a message."""
    pending = delivery.status is DeliveryStatus.PENDING
    message = dpb.CallbackDelivery(
        name=delivery.name,
        state=_STATUSES[delivery.status],
        invocation_state=ipb.InvocationState.Value(f"INVOCATION_STATE_{delivery.state.name}"),
        tries=delivery.tries,
        detail=delivery.detail,
        end_time=_timestamp(delivery.end_time),
        try_time=_timestamp(delivery.try_time),
        next_time=_timestamp(delivery.next_time) if pending else None,
        expire_time=_timestamp(delivery.expire_time),
    )
    if delivery.status is DeliveryStatus.FAILED:
        failure = MeshError(Reason.WEBHOOK_FAILED, metadata={"detail": delivery.detail, "tries": str(delivery.tries)})
        message.error.CopyFrom(envelope(failure))
    return message


def delivery_filter_of(message: pb.ListCallbackDeliveriesRequest, owner: JobOwner) -> DeliveryFilter:
    """Return which deliveries are asked for."""
    statuses = tuple(_STATUS_NAMES[state] for state in message.states)
    return DeliveryFilter(owner, message.invocation.removeprefix("invocations/"), statuses)


def delivery_cursor_of(message: pb.ListCallbackDeliveriesRequest, owner: JobOwner) -> tuple[datetime, str] | None:
    """Return where the page begins. Raises PAGE_TOKEN_INVALID."""
    return page_tokens.decode_time_cursor(_query(message, owner), message.page_token)


def deliveries_of(
    message: pb.ListCallbackDeliveriesRequest,
    owner: JobOwner,
    deliveries: Sequence[Delivery],
    cursor: tuple[datetime, str] | None,
) -> pb.ListCallbackDeliveriesResponse:
    """Return a page of deliveries as a message."""
    token = ""
    if cursor is not None:
        token = page_tokens.encode(_query(message, owner), [cursor[0].isoformat(), cursor[1]])
    return pb.ListCallbackDeliveriesResponse(
        deliveries=[delivery_of(delivery) for delivery in deliveries], next_page_token=token
    )


def _query(message: pb.ListCallbackDeliveriesRequest, owner: JobOwner) -> list[object]:
    return ["deliveries", owner.tenant, owner.subject, message.invocation, sorted(message.states)]


def _timestamp(moment: datetime | None) -> Timestamp | None:
    return None if moment is None else Timestamp(seconds=int(moment.timestamp()), nanos=moment.microsecond * 1000)
