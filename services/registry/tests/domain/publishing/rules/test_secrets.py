"""Credentials that the code of a tool reads: for Python functions, each under its own name."""

from __future__ import annotations

import pytest
from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from services.registry.convert.manifest import manifest_of
from services.registry.domain.publishing.rules.secrets import check_secrets
from services.registry.tests.manifests import reader


def declared(runner: pb.RunnerKind.ValueType, *names: str) -> list[str]:
    message = reader()
    message.execution.runner = runner
    message.execution.secrets.extend(pb.ToolSecret(name=name, secret="secret://crm") for name in names)
    return [f"{violation.path} {violation.rule}" for violation in check_secrets(manifest_of(message))]


def test_a_function_may_read_several() -> None:
    assert declared(pb.RUNNER_KIND_PYTHON, "key", "other") == []
    assert declared(pb.RUNNER_KIND_COMMAND) == []


@pytest.mark.parametrize("runner", [pb.RUNNER_KIND_COMMAND, pb.RUNNER_KIND_HTTP, pb.RUNNER_KIND_BUILTIN])
def test_no_other_runner_hands_one_over(runner: pb.RunnerKind.ValueType) -> None:
    assert declared(runner, "key") == ["manifest.execution.secrets field.not_honoured"]


def test_a_name_is_used_once() -> None:
    found = declared(pb.RUNNER_KIND_PYTHON, "key", "other", "key")
    assert found == ["manifest.execution.secrets[2].name secrets.twice"]
