"""Conversion of tools' logs: whose logs a reader may see, and each line with its source."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from toolmesh.executor.v1 import tool_log_pb2 as log_pb
from toolmesh.executor.v1 import tool_log_service_pb2 as pb

from libs.common.auth.identity import Grant, Identity
from libs.common.call_context import Call
from libs.common.trace_context import continue_trace
from services.executor.convert import tool_logs as convert
from services.executor.domain.run import LogLine, LogSource
from services.executor.domain.tool_logs.list_tool_logs import LogPage, LogQuery
from services.executor.domain.tool_logs.tool_log import ToolLog


def a_call(**identity: Any) -> Call:
    who = Identity("did:web:x:ada", token_id="t", expires_at=1.0, tier="user", **identity) if identity else None
    return Call("/m", continue_trace(None), peer="edge", identity=who)


@pytest.mark.parametrize(
    ("call", "tenant", "grants"),
    [
        (a_call(tenant="acme", tools=(Grant("echo"),)), "acme", (Grant("echo"),)),
        (a_call(tools=(Grant("*"),)), None, (Grant("*"),)),
        (a_call(), None, None),
    ],
)
def test_a_reader_of_a_tenant_sees_its_own(call: Call, tenant: str | None, grants: Any) -> None:
    request = pb.ListToolLogsRequest(tool="echo", version="1.0.0", invocation_id="i")
    assert convert.query_of(request, call) == LogQuery("core.echo", "1.0.0", "i", tenant)
    assert convert.grants_of(call) == grants


def test_a_page_arrives_whole() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    lines = tuple(LogLine(source, source.value) for source in LogSource)
    log = ToolLog("i", "core.say", "1.0.0", "acme", "ada", lines, 7, moment, moment)
    message = convert.page_message(LogPage([log], "next"))
    [shown] = message.logs
    assert (shown.tool_version, shown.tenant, shown.subject) == ("tools/core.say/versions/1.0.0", "acme", "ada")
    assert [log_pb.ToolLogSource.Name(line.source) for line in shown.lines] == [
        f"TOOL_LOG_SOURCE_{line.text.upper()}" for line in shown.lines
    ]
    assert (shown.omitted_characters, shown.create_time.ToDatetime(UTC), message.next_page_token) == (7, moment, "next")
