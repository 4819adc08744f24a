"""`toolmesh tools verify` and `audited`: what somebody found out about a version, for its trust and its stage to rest on."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.commands.tools.lifecycle import Version
from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.admin_connection import as_steward, short, version_name
from toolmesh_sdk.cli.inputs.target import Place
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.registry.v1 import trust_service_pb2 as pb


class Kind(StrEnum):
    """What can be verified of a version."""

    SANDBOX_DEPLOYMENT = "sandbox_deployment"
    INTEGRATION_TESTS = "integration_tests"
    REGRESSION = "regression"
    SLA_COMMITMENT = "sla_commitment"
    PROVIDER_IDENTITY = "provider_identity"


class Level(StrEnum):
    """Who audited a version."""

    SELF_ASSESSED = "self_assessed"
    THIRD_PARTY = "third_party"


@reported
def verify(
    name: Version,
    kind: Annotated[Kind, typer.Argument(help="What was verified.")],
    failed: Annotated[bool, typer.Option("--failed", help="It did not hold.")] = False,
    evidence: Annotated[str, typer.Option(help="Where the evidence is, a URL.")] = "",
    summary: Annotated[str, typer.Option(help="What was seen, in a few sentences.")] = "",
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Record that something about a version was verified, or failed to be; the last word on each kind stands."""
    from toolmesh.registry.v1 import trust_service_pb2 as pb
    from toolmesh.registry.v1.trust_service_pb2_grpc import TrustServiceStub

    request = pb.RecordVerificationRequest(
        version=version_name(name),
        kind=pb.VerificationKind.Value(f"VERIFICATION_KIND_{kind.upper()}"),
        passed=not failed,
        evidence_url=evidence,
        summary=summary,
    )
    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = TrustServiceStub(transport.channel)
        answer = transport.unary(stub.RecordVerification, request, None, repeatable=False)
    _tell(request.version, kind, answer, failed=failed, as_json=as_json)


@reported
def audited(
    name: Version,
    level: Annotated[
        Level, typer.Argument(help="Its provider, or somebody independent; only the operator says the latter.")
    ],
    auditor: Annotated[str, typer.Option(help="The auditor's name.")],
    failed: Annotated[bool, typer.Option("--failed", help="It did not pass.")] = False,
    report: Annotated[str, typer.Option(help="Where the report is, a URL.")] = "",
    summary: Annotated[str, typer.Option(help="What was found, in a few sentences.")] = "",
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Record the security audit of a version; the last one stands."""
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
    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = TrustServiceStub(transport.channel)
        answer = transport.unary(stub.RecordSecurityAudit, request, None, repeatable=False)
    _tell(request.version, f"{level} security audit", answer, failed=failed, as_json=as_json)


def _tell(
    version: str,
    what: str,
    answer: pb.RecordVerificationResponse | pb.RecordSecurityAuditResponse,
    *,
    failed: bool,
    as_json: bool,
) -> None:
    from toolmesh_sdk.cli.views.documents import document

    if as_json:
        output.print_json(document(answer))
        return
    verdict = "failed" if failed else "passed"
    output.out().print(output.text(f"{short(version)} {verdict} {what}", (f"  {answer.fact_id}", "dim")))
