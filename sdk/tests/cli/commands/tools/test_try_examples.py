"""`toolmesh tools test`: examples are called, previewed or skipped, and nothing is changed by it."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.registry.v1 import registry_service_pb2, tool_version_pb2
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb
from toolmesh_sdk import Reason

from libs.common.errors import MeshError
from sdk.tests.executor_samples import envelope

READS, WRITES = mpb.MUTATION_CLASS_READ_ONLY, mpb.MUTATION_CLASS_WRITE_IRREVERSIBLE
EXAMPLES = [
    mpb.ContractExample(title="one", arguments=b'{"n":1}', result=b'{"n":18446744073709551615}'),
    mpb.ContractExample(arguments=b'{"n":2}'),
]


@pytest.fixture
def offer(mesh: Any) -> Any:
    def answer(mutation: Any, **fields: Any) -> None:
        contract = mpb.InputContract(examples=EXAMPLES)
        manifest = mpb.ToolManifest(version="1.2.0", mutation_class=mutation, input=contract, **fields)
        version = tool_version_pb2.ToolVersion(name="tools/acme.wipe/versions/1.2.0", manifest=manifest)
        mesh.answer("ResolveTool", registry_service_pb2.ResolveToolResponse(version=version))

    return answer


def outcomes(ran: Any) -> list[tuple[str, bool]]:
    return [(each["outcome"], bool(each["problem"])) for each in json.loads(ran.stdout)["examples"]]


def test_a_tool_that_reads_is_called_and_its_results_compared(toolmesh: Any, mesh: Any, offer: Any) -> None:
    offer(READS)
    mesh.answer("Invoke", pb.InvokeResponse(result=envelope({"n": 2**64 - 1})))
    ran = toolmesh("tools", "test", "acme.wipe", "--json")
    assert (ran.exit_code, outcomes(ran)) == (0, [("called", False), ("called", False)])
    sent = [call.request for call in mesh.of("Invoke")]
    assert [(each.arguments, each.version) for each in sent] == [(b'{"n":1}', "1.2.0"), (b'{"n":2}', "1.2.0")]
    mesh.answer("Invoke", pb.InvokeResponse(result=envelope({"n": 3})))
    ran = toolmesh("tools", "test", "acme.wipe", "--json")
    assert (ran.exit_code, outcomes(ran)) == (1, [("called", True), ("called", False)])


def test_a_tool_that_writes_is_previewed_and_never_called(toolmesh: Any, mesh: Any, offer: Any) -> None:
    offer(WRITES, dry_run_supported=True)
    mesh.answer("PreviewInvocation", pb.PreviewInvocationResponse())
    ran = toolmesh("tools", "test", "acme.wipe", "--json")
    assert (ran.exit_code, outcomes(ran)) == (0, [("previewed", False), ("previewed", False)])
    mesh.answer("PreviewInvocation", pb.PreviewInvocationResponse(predicted_result=b'{"n":3}'))
    ran = toolmesh("tools", "test", "acme.wipe", "--json")
    assert (ran.exit_code, outcomes(ran)) == (1, [("previewed", True), ("previewed", False)])
    mesh.answer("PreviewInvocation", MeshError(Reason.EXECUTION_FAILED))
    ran = toolmesh("tools", "test", "acme.wipe", "--json")
    assert (ran.exit_code, outcomes(ran)) == (1, [("previewed", True), ("previewed", True)])
    assert mesh.of("Invoke") == []


def test_nothing_is_sent_to_a_tool_that_writes_without_a_dry_run(toolmesh: Any, mesh: Any, offer: Any) -> None:
    offer(WRITES)
    ran = toolmesh("tools", "test", "acme.wipe", "--json")
    assert (ran.exit_code, outcomes(ran)) == (0, [("skipped", False), ("skipped", False)])
    assert mesh.of("Invoke") == mesh.of("PreviewInvocation") == []
    assert toolmesh("tools", "test", "acme.wipe").stdout.count("skipped") == 2


def test_a_mesh_that_cannot_be_reached_is_no_problem_of_the_example(toolmesh: Any, mesh: Any, offer: Any) -> None:
    offer(READS)
    mesh.answer("Invoke", grpc.StatusCode.UNAVAILABLE)
    ran = toolmesh("tools", "test", "acme.wipe")
    assert (ran.exit_code, "example" in ran.stderr) == (3, False)
