"""What is logged about calls: nothing while they wait for their answer, everything a moment later."""

from __future__ import annotations

from pathlib import Path

import orjson
from prometheus_client import REGISTRY

from libs.common.call_context import Call
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from libs.common.trace_context import TraceContext
from services.gateway.transport.telemetry import CANCELED, Telemetry


def _counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_calls_are_counted_and_told_together_each_once(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        log = Log("gateway", descriptor=file.fileno())
        telemetry = Telemetry(log, Tracing())
        for number, code in enumerate(("OK", CANCELED)):
            call = Call("rpc/told", TraceContext(f"trace-{number}", "span", "", False), token="secret")
            call.deadline = call.started + 1.5
            telemetry.end(call, telemetry.begin(call), code)
        assert _counted("toolmesh_calls_in_flight", method="rpc/told") == 2
        telemetry.flush()
        telemetry.flush()
        log.flush()
    text = (tmp_path / "log").read_bytes()
    lines = [orjson.loads(line) for line in text.splitlines()]
    assert [(line["trace_id"], line["code"]) for line in lines] == [("trace-0", "OK"), ("trace-1", CANCELED)]
    assert {line["deadline_ms"] for line in lines} == {1500.0}
    assert b"secret" not in text
    assert _counted("toolmesh_calls_in_flight", method="rpc/told") == 0
    assert _counted("toolmesh_calls_total", method="rpc/told", code="OK") == 1
    assert _counted("toolmesh_calls_total", method="rpc/told", code=CANCELED) == 1
    assert _counted("toolmesh_call_seconds_count", method="rpc/told") == 2
