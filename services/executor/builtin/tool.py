"""What every tool that ships with the executor is: a manifest and one function."""

from __future__ import annotations

from typing import Any, Protocol

from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from libs.common.json.jsonio import dump
from libs.common.tool_names import ToolName

NAMESPACE = "core"
PROVIDER = "toolmesh"


class BuiltinTool(Protocol):
    """A tool that runs inside the executor."""

    @property
    def manifest(self) -> pb.ToolManifest:
        """What the tool promises."""
        ...

    def call(self, arguments: dict[str, Any]) -> Any:
        """Answer at once: it runs on the event loop, so its work is bounded to a moment. Raises MeshError."""
        ...


def version_name(manifest: pb.ToolManifest) -> str:
    """Return the resource name that a manifest's version gets."""
    return ToolName(manifest.namespace, manifest.tool_id).version(manifest.version)


def read_only_manifest(
    *,
    tool_id: str,
    version: str,
    title: str,
    description: str,
    search_hint: str,
    tags: list[str],
    input_schema: dict[str, Any],
    output_schema: dict[str, Any],
    examples: list[tuple[str, dict[str, Any], Any]],
) -> pb.ToolManifest:
    """Return the manifest of a tool that computes something and changes nothing."""
    return pb.ToolManifest(
        schema_version="0.2.0",
        tool_id=tool_id,
        namespace=NAMESPACE,
        version=version,
        title=title,
        description=description,
        search_hint=search_hint,
        provider=PROVIDER,
        kind=pb.TOOL_KIND_NATIVE_TOOL,
        protocol=pb.TOOL_PROTOCOL_NATIVE,
        tags=tags,
        input=pb.InputContract(
            schema=dump(input_schema),
            argument_mode=pb.ARGUMENT_MODE_OBJECT,
            mutation_policy=pb.INPUT_MUTATION_POLICY_DEFAULTS,
            examples=[
                pb.ContractExample(title=shows, arguments=dump(arguments), result=dump(result))
                for shows, arguments, result in examples
            ],
        ),
        output=pb.OutputContract(schema=dump(output_schema)),
        interface=pb.ToolInterface(
            safety=pb.SafetyClassification(
                read_only=True,
                non_destructive=True,
                closed_world=True,
                concurrency_safe=True,
                sandbox_tier=pb.SANDBOX_TIER_IN_PROCESS,
            )
        ),
        execution=pb.ExecutionProfile(
            runner=pb.RUNNER_KIND_BUILTIN,
            entry_point=tool_id,
            timeout_class=pb.TIMEOUT_CLASS_INTERACTIVE,
            timeout_default=Duration(nanos=500_000_000),
            network_policy=pb.NetworkPolicy(deny_all_egress=True),
        ),
        permission=pb.PermissionProfile(
            required_scopes=["tools:call"],
            credential_propagation=pb.CREDENTIAL_PROPAGATION_NONE,
            approval=pb.APPROVAL_REQUIREMENT_BY_POLICY,
        ),
        mutation_class=pb.MUTATION_CLASS_READ_ONLY,
        idempotency=pb.Idempotency(
            mode=pb.IDEMPOTENCY_MODE_NATURAL, uncertain_outcome=pb.UNCERTAIN_OUTCOME_RULE_REPEAT
        ),
        observability=pb.Observability(audit_detail=pb.AUDIT_DETAIL_SUMMARY),
        license="Apache-2.0",
    )
