"""The edge's configuration: that Envoy takes it, in every form it can have, and that it agrees with the error table."""

from __future__ import annotations

import base64
import contextvars
import re
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Any

import pytest
from google.rpc import error_details_pb2, status_pb2
from toolmesh.common.v1.error_reason_pb2 import ErrorEnvelope
from toolmesh.common.v1.error_table import ROWS, Reason

from libs.common.errors import MeshError
from libs.common.rpc.status import trailing_details
from localmesh import wheels
from localmesh.parts.envoy import TEMPLATE, EnvoyPlan, prepare_socket_folder, render
from localmesh.ports import USUAL_PORTS
from localmesh.settings import Settings
from localmesh.state.certificates import issue_certificates


@pytest.fixture
def plan(tmp_path: Path) -> EnvoyPlan:
    return EnvoyPlan(wheels.envoy(), tmp_path, USUAL_PORTS, issue_certificates(tmp_path / "pki"), Settings())


@pytest.mark.parametrize(
    "settings",
    [Settings(), Settings(otlp_endpoint="http://127.0.0.1:4317"), Settings(trace_sample_ratio=0.01, rate_burst=1)],
    ids=["local", "with a collector", "sampled"],
)
def test_envoy_accepts_the_configuration_without_a_warning(plan: EnvoyPlan, settings: Settings) -> None:
    finished = validate(plan, render(replace(plan, settings=settings)))
    assert finished.returncode == 0, finished.stderr
    assert "[warning]" not in finished.stderr
    assert "deprecated" not in finished.stderr


def test_the_values_of_a_cluster_are_accepted_too(plan: EnvoyPlan) -> None:
    readme = TEMPLATE.with_name("README.md").read_text()
    examples = {
        name: re.search(rf"    {name}: (.*(?:\n      .*)*)", readme) for name in ("outlier_detection", "trace_provider")
    }
    text = render(plan)
    for name, found in examples.items():
        assert found is not None
        assert ": null" in text
        text = text.replace(f"{name.removeprefix('trace_')}: null", f"{name.removeprefix('trace_')}: {found[1]}")
    finished = validate(plan, text.replace("type: STATIC", "type: STRICT_DNS"))
    assert finished.returncode == 0, finished.stderr


def test_every_placeholder_is_explained() -> None:
    readme = TEMPLATE.with_name("README.md").read_text()
    explained = set(re.findall(r"`([a-z_]+)`", readme))
    names = {
        re.sub("^(gateway|executor|registry|authz|approval|audit)_endpoints$", "", name) for name in placeholders()
    }
    assert names - {""} <= explained


def test_no_try_of_a_call_is_cut_off_and_repeated(plan: EnvoyPlan) -> None:
    """A search that takes its time would be begun again, three times, by a registry that is busy already."""
    text = render(plan)
    assert "per_try_timeout:" not in text
    repeated = re.search(r"name: grpc_registry_reads\n.*regex: \"([^\"]+)\"", text)
    assert repeated is not None
    assert re.fullmatch(repeated[1], "/toolmesh.registry.v1.ToolService/GetTool")
    assert not re.fullmatch(repeated[1], "/toolmesh.registry.v1.DiscoveryService/SearchTools")


def test_the_admin_interface_is_a_socket_of_its_owner(plan: EnvoyPlan) -> None:
    assert f'admin:\n  address: {{pipe: {{path: "{plan.admin_socket}", mode: {0o600}}}}}' in render(plan)
    prepare_socket_folder(plan.admin_socket)
    assert stat.S_IMODE(plan.admin_socket.parent.stat().st_mode) == 0o700


def test_a_long_folder_has_its_socket_elsewhere(plan: EnvoyPlan) -> None:
    deep = replace(plan, folder=plan.folder / ("d" * 100))
    assert len(str(deep.admin_socket)) <= 100
    assert deep.admin_socket != replace(plan, folder=plan.folder / ("e" * 100)).admin_socket


def test_the_tracer_runs_only_where_spans_are_exported(plan: EnvoyPlan) -> None:
    with_collector = render(replace(plan, settings=Settings(otlp_endpoint="http://collector:4317")))
    assert "envoy.tracers.opentelemetry" in with_collector
    assert "envoy.tracers.opentelemetry" not in render(plan)


def test_the_edge_lets_in_every_token_that_authz_may_make(plan: EnvoyPlan) -> None:
    year = 366 * 86_400
    assert "max_lifetime: 90000s" in render(plan)
    assert f"max_lifetime: {year + 3600}s" in render(replace(plan, settings=Settings(max_token_lifetime=year)))


def test_every_refusal_of_the_edge_is_a_row_of_the_error_table() -> None:
    refusals = list(_refusals())
    assert len(refusals) > 10
    for refusal in refusals:
        row = ROWS[Reason[refusal["reason"]]]
        assert refusal["code"] == row.code
        assert int(refusal["jsonrpc"]) == row.jsonrpc_code
        assert refusal["message"] == refusal["said"] == row.title
        assert refusal["resolution"] == row.resolution
        assert (refusal["retryable"] == "true") == row.retryable


def test_every_grpc_refusal_of_the_edge_carries_the_envelope_of_its_row() -> None:
    found = re.findall(r"grpc-status-details-bin, value: (\S+?)\}\}\] # (\w+)(?:, (.+))?", TEMPLATE.read_text())
    assert len(found) > 10
    for value, name, more in found:
        sent = base64.b64decode(value + "=" * (-len(value) % 4))
        # In a context of its own: the details of a refusal that belongs to no call.
        details = contextvars.Context().run(trailing_details, MeshError(Reason[name], **FACTS[more]))
        assert parts_of(sent) == parts_of(dict(details)["grpc-status-details-bin"]), name


# What the comment behind a refusal says that it carries beyond its row.
FACTS: dict[str, dict[str, Any]] = {
    "": {},
    "outcome unknown": {"metadata": {"outcome": "unknown"}},
    "retry after 1 s": {"retry_after": 1.0},
}


def parts_of(details: bytes) -> list[Any]:
    """Details as messages: the bytes of a message with several facts are not always the same."""
    status = status_pb2.Status.FromString(details)
    kinds: dict[str, Any] = {
        kind.DESCRIPTOR.full_name: kind
        for kind in (ErrorEnvelope, error_details_pb2.ErrorInfo, error_details_pb2.RetryInfo)
    }
    parts = [kinds[part.TypeName()].FromString(part.value) for part in status.details]
    return [status.code, status.message, *parts]


def validate(plan: EnvoyPlan, text: str) -> subprocess.CompletedProcess[str]:
    plan.configuration.write_text(text)
    argv = [str(plan.program), "--mode", "validate", "-c", str(plan.configuration)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)


def placeholders() -> set[str]:
    return set(Template(TEMPLATE.read_text()).get_identifiers())


def _refusals() -> list[dict[str, str]]:
    pattern = (
        r'error: \{code: (?P<jsonrpc>-\d+), message: "(?P<message>[^"]+)", data: &\w+ \{\s+'
        r"reason: (?P<reason>\w+), code: (?P<code>E\d+), .*?retryable: (?P<retryable>\w+),.*?"
        r'message: "(?P<said>[^"]+)", resolution: "(?P<resolution>[^"]+)"'
    )
    return [match.groupdict() for match in re.finditer(pattern, TEMPLATE.read_text(), re.DOTALL)]
