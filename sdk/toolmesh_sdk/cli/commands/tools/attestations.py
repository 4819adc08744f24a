"""`toolmesh tools verify` and `audited`: record attestations, which feed the trust score and the stage of a tool."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.commands.tools.lifecycle import Version
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.admin_connection import as_admin
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.tool_names import short_name, version_name
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.registry.v1 import trust_service_pb2 as pb


class Kind(StrEnum):
    """The kinds of verification."""

    SANDBOX_DEPLOYMENT = "sandbox_deployment"
    INTEGRATION_TESTS = "integration_tests"
    REGRESSION = "regression"
    SLA_COMMITMENT = "sla_commitment"
    PROVIDER_IDENTITY = "provider_identity"


class Level(StrEnum):
    """The independence of an auditor."""

    SELF_ASSESSED = "self_assessed"
    THIRD_PARTY = "third_party"


@report_errors
@add_target_options()
def verify(
    name: Version,
    kind: Annotated[Kind, typer.Argument(help="The kind of verification.")],
    failed: Annotated[bool, typer.Option("--failed", help="The verification failed.")] = False,
    evidence: Annotated[str, typer.Option(help="The URL of the evidence.")] = "",
    summary: Annotated[str, typer.Option(help="A short summary.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Record the result of a verification. The newest record of each kind counts.

    \b
    Example:
      toolmesh tools verify acme.pay@1.0.0 integration_tests --summary '214 passed'
    """
    from toolmesh.registry.v1 import trust_service_pb2 as pb
    from toolmesh.registry.v1.trust_service_pb2_grpc import TrustServiceStub

    request = pb.RecordVerificationRequest(
        version=version_name(name),
        kind=pb.VerificationKind.Value(f"VERIFICATION_KIND_{kind.upper()}"),
        passed=not failed,
        evidence_url=evidence,
        summary=summary,
    )
    with as_admin(target) as transport:
        stub = TrustServiceStub(transport.channel)
        answer = transport.unary(stub.RecordVerification, request, None, repeatable=False)
    _print_attestation(request.version, kind, answer, failed=failed, as_json=as_json)


@report_errors
@add_target_options()
def audited(
    name: Version,
    level: Annotated[
        Level, typer.Argument(help="By the provider, or by a third party; only the operator may record the latter.")
    ],
    auditor: Annotated[str, typer.Option(help="The name of the auditor.")],
    failed: Annotated[bool, typer.Option("--failed", help="The audit failed.")] = False,
    report: Annotated[str, typer.Option(help="The URL of the report.")] = "",
    summary: Annotated[str, typer.Option(help="A short summary.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Record a security audit of a version. The newest record counts.

    \b
    Example:
      toolmesh tools audited acme.pay@1.0.0 third_party --auditor 'Example Labs'
    """
    from toolmesh.registry.v1 import trust_service_pb2 as pb
    from toolmesh.registry.v1.trust_service_pb2_grpc import TrustServiceStub

    request = pb.RecordSecurityAuditRequest(
        version=version_name(name),
        level=pb.AuditLevel.Value(f"AUDIT_LEVEL_{level.upper()}"),
        passed=not failed,
        auditor=auditor,
        report_url=report,
        summary=summary,
    )
    with as_admin(target) as transport:
        stub = TrustServiceStub(transport.channel)
        answer = transport.unary(stub.RecordSecurityAudit, request, None, repeatable=False)
    _print_attestation(request.version, f"{level} security audit", answer, failed=failed, as_json=as_json)


def _print_attestation(
    version: str,
    what: str,
    answer: pb.RecordVerificationResponse | pb.RecordSecurityAuditResponse,
    *,
    failed: bool,
    as_json: bool,
) -> None:
    from toolmesh_sdk.cli.views.documents import message_to_dict

    if as_json:
        output.print_json(message_to_dict(answer))
        return
    verdict = "failed" if failed else "passed"
    output.out().print(output.text(f"{short_name(version)} {verdict} {what}", (f"  {answer.fact_id}", "dim")))
