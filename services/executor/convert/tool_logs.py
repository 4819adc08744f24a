"""Converts messages of ToolLogService."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1 import tool_log_pb2 as log_pb
from toolmesh.executor.v1 import tool_log_service_pb2 as pb

from libs.common.auth.identity import Grant
from libs.common.call_context import Call
from libs.common.tool_names import ToolName
from services.executor.domain.run import LogSource
from services.executor.domain.tool_logs.list_tool_logs import LogPage, LogQuery
from services.executor.domain.tool_logs.tool_log import ToolLog

_SOURCES = {source: log_pb.ToolLogSource.Value(f"TOOL_LOG_SOURCE_{source.name}") for source in LogSource}


def query_of(request: pb.ListToolLogsRequest, call: Call) -> LogQuery:
    """Return the query of a reader, who sees its own tenant alone. A text that cannot be a tool raises
    TOOL_NOT_FOUND."""
    tool = ToolName.parse(request.tool).qualified if request.tool else ""
    return LogQuery(tool, request.version, request.invocation_id, call.tenant or None)


def grants_of(call: Call) -> tuple[Grant, ...] | None:
    """Return the tools that the reader's token names; None for a peer that reads for itself."""
    return None if call.identity is None else call.identity.tools


def page_message(page: LogPage) -> pb.ListToolLogsResponse:
    """Return a page as a message."""
    return pb.ListToolLogsResponse(logs=map(_message, page.logs), next_page_token=page.next_page_token)


def _message(log: ToolLog) -> log_pb.ToolLog:
    message = log_pb.ToolLog(
        invocation_id=log.invocation_id,
        tool_version=f"tools/{log.tool}/versions/{log.version}",
        tenant=log.tenant,
        subject=log.subject,
        lines=[log_pb.ToolLogLine(source=_SOURCES[line.source], text=line.text) for line in log.lines],
        omitted_characters=log.omitted,
    )
    for name, moment in (("create_time", log.create_time), ("expire_time", log.expire_time)):
        if moment is not None:
            stamp: Timestamp = getattr(message, name)
            stamp.FromDatetime(moment)
    return message
