"""Reads usage from the audit service."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import grpc.aio
from google.protobuf.duration_pb2 import Duration
from toolmesh.audit.v1 import usage_service_pb2 as pb
from toolmesh.audit.v1 import usage_service_pb2_grpc as rpc

from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from services.registry.convert.shared import timestamp
from services.registry.domain.trust.usage import Usage

_SECONDS = 2.0
# The counter runs once a second. With this backlog it has stopped, and its counts are not current.
FALLEN_BEHIND = 10_000


class AuditUsageReader:
    """Reads usage from the audit service. Errors and incomplete counts mean unknown."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = rpc.UsageServiceStub(channel)

    async def usage(self, name: str, since: datetime, declared: timedelta | None = None) -> Usage:
        """Return the usage of a tool or a version. Raises SERVICE_UNAVAILABLE when it is unknown."""
        return (await self.usages({name: declared}, since))[name]

    async def usages(self, declared: Mapping[str, timedelta | None], since: datetime) -> Mapping[str, Usage]:
        """Return the usage of several tools at one time. Raises SERVICE_UNAVAILABLE when it is unknown."""
        request = pb.BatchGetToolUsageRequest(requests=[_asked(*entry, since) for entry in declared.items()])
        try:
            response: pb.BatchGetToolUsageResponse = await self._stub.BatchGetToolUsage(request, timeout=_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=1.0) from from_rpc_error(error)
        for usage in response.usages:
            if usage.coverage.log_records - usage.coverage.counted_records > FALLEN_BEHIND:
                raise MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=1.0)
        return {name: usage_of(usage) for name, usage in zip(declared, response.usages, strict=True)}


class UnavailableUsageReader:
    """The usage reader of a mesh without an audit service."""

    async def usage(self, name: str, since: datetime, declared: timedelta | None = None) -> Usage:
        """Raise SERVICE_UNAVAILABLE: unknown is never zero."""
        raise MeshError(Reason.SERVICE_UNAVAILABLE)

    async def usages(self, declared: Mapping[str, timedelta | None], since: datetime) -> Mapping[str, Usage]:
        """Raise SERVICE_UNAVAILABLE: unknown is never zero."""
        raise MeshError(Reason.SERVICE_UNAVAILABLE)


def _asked(name: str, declared: timedelta | None, since: datetime) -> pb.GetToolUsageRequest:
    request = pb.GetToolUsageRequest(name=name, from_time=timestamp(since))
    if declared is not None:
        request.declared_latency.CopyFrom(_duration(declared))
    return request


def usage_of(answer: pb.GetToolUsageResponse) -> Usage:
    """Convert a response."""
    counted = answer.usage
    return Usage(
        ran=counted.succeeded + counted.failed + counted.timed_out,
        succeeded=counted.succeeded,
        valid_results=1.0 - answer.invalid_result_rate if answer.HasField("invalid_result_rate") else None,
        within_latency=answer.within_latency_rate if answer.HasField("within_latency_rate") else None,
        calls=counted.calls,
        last_call=answer.last_call_time.ToDatetime(tzinfo=UTC) if answer.HasField("last_call_time") else None,
    )


def _duration(span: timedelta) -> Duration:
    duration = Duration()
    duration.FromTimedelta(span)
    return duration
