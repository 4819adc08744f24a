"""`toolmesh tools trust`, `rate`, `promote`, `demote`, `revoke` and `reinstate`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.commands.tools.attestations import audited, verify
from toolmesh_sdk.cli.commands.tools.lifecycle import Reason, Version
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.admin_connection import as_admin, as_caller, as_operator
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_operator_options, add_target_options
from toolmesh_sdk.cli.inputs.tool_completion import complete_tool
from toolmesh_sdk.cli.tool_names import short_name, version_name
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.registry.v1 import trust_service_pb2 as pb


Tool = Annotated[
    str, typer.Argument(metavar="NAME", help="The tool, such as echo or acme.send_email.", autocompletion=complete_tool)
]


class Stage(StrEnum):
    """The contribution stages of a tool."""

    SUBMITTED = "submitted"
    SANDBOX = "sandbox"
    BETA = "beta"
    GA = "ga"


def add_to(app: typer.Typer) -> None:
    """Add the commands to a group."""
    for command in (trust, rate, verify, audited, promote, demote, revoke, reinstate):
        app.command()(command)


@report_errors
@add_target_options()
def trust(name: Tool, *, target: Target, as_json: bool) -> None:
    """Show the trust score and stage of a tool.

    Lists every signal of the score, and the gates of the next stage.

    \b
    Example:
      toolmesh tools trust acme.pay
    """
    from toolmesh.registry.v1 import trust_service_pb2 as pb
    from toolmesh.registry.v1.trust_service_pb2_grpc import TrustServiceStub

    from toolmesh_sdk.cli.views.documents import message_to_dict

    with as_caller(target) as transport:
        stub = TrustServiceStub(transport.channel)
        trust_score = transport.unary(stub.GetTrustScore, pb.GetTrustScoreRequest(name=name), None, repeatable=True)
        stage = transport.unary(stub.GetStage, pb.GetStageRequest(name=name), None, repeatable=True)
    if as_json:
        output.print_json({**message_to_dict(trust_score), "next_stage": message_to_dict(stage)})
    else:
        _print_trust(trust_score, stage)


@report_errors
@add_target_options()
def rate(
    name: Version,
    stars: Annotated[int, typer.Argument(min=1, max=5, help="1 (bad) to 5 (good).")],
    comment: Annotated[str, typer.Option(help="The reason of the rating.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Rate a version. Repeat it to change your rating.

    \b
    Example:
      toolmesh tools rate acme.pay 5
    """
    from toolmesh.registry.v1 import trust_service_pb2 as pb
    from toolmesh.registry.v1.trust_service_pb2_grpc import TrustServiceStub

    from toolmesh_sdk.cli.views.documents import message_to_dict

    request = pb.RateToolRequest(version=version_name(name), stars=stars, comment=comment)
    with as_caller(target) as transport:
        stub = TrustServiceStub(transport.channel)
        answer = transport.unary(stub.RateTool, request, None, repeatable=True)
    if as_json:
        output.print_json(message_to_dict(answer))
    else:
        output.out().print(f"{answer.average:.1f} of 5 on average; {answer.ratings} ratings")


@report_errors
@add_target_options()
def promote(name: Tool, reason: Reason = "", *, target: Target, as_json: bool) -> None:
    """Promote a tool to its next stage.

    A refusal lists every gate that the tool does not meet.

    \b
    Example:
      toolmesh tools promote acme.pay
    """
    from toolmesh.registry.v1 import trust_service_pb2 as pb
    from toolmesh.registry.v1.trust_service_pb2_grpc import TrustServiceStub

    with as_admin(target) as transport:
        stub = TrustServiceStub(transport.channel)
        request = pb.PromoteToolRequest(name=name, reason=reason)
        answer = transport.unary(stub.PromoteTool, request, None, repeatable=False)
    _print_stage(name, answer, as_json)


@report_errors
@add_target_options()
def demote(
    name: Tool,
    stage: Annotated[Stage, typer.Argument(help="The earlier stage.")],
    reason: Reason,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Demote a tool to an earlier stage.

    \b
    Example:
      toolmesh tools demote acme.pay beta --reason 'too many failures'
    """
    from toolmesh.registry.v1 import trust_service_pb2 as pb
    from toolmesh.registry.v1.trust_service_pb2_grpc import TrustServiceStub

    number = pb.ContributionStage.Value(f"CONTRIBUTION_STAGE_{stage.upper()}")
    with as_admin(target) as transport:
        stub = TrustServiceStub(transport.channel)
        request = pb.DemoteToolRequest(name=name, to_stage=number, reason=reason)
        answer = transport.unary(stub.DemoteTool, request, None, repeatable=False)
    _print_stage(name, answer, as_json)


@report_errors
@add_target_options()
def revoke(name: Tool, reason: Reason, *, target: Target, as_json: bool) -> None:
    """Revoke a tool across the mesh at once. Only the operator can reinstate it.

    \b
    Example:
      toolmesh tools revoke acme.pay --reason 'leaks data'
    """
    from toolmesh.registry.v1 import trust_service_pb2 as pb
    from toolmesh.registry.v1.trust_service_pb2_grpc import TrustServiceStub

    with as_admin(target) as transport:
        stub = TrustServiceStub(transport.channel)
        request = pb.RevokeToolRequest(name=name, reason=reason)
        answer = transport.unary(stub.RevokeTool, request, None, repeatable=True)
    _print_versions("revoked", name, list(answer.versions), as_json)


@report_errors
@add_operator_options()
def reinstate(name: Tool, reason: Reason, *, target: Target, as_json: bool) -> None:
    """Reinstate a revoked tool. Only the operator may do so.

    \b
    Example:
      toolmesh tools reinstate acme.pay --reason 'fixed in 1.0.1'
    """
    from toolmesh.registry.v1 import trust_service_pb2 as pb
    from toolmesh.registry.v1.trust_service_pb2_grpc import TrustServiceStub

    with as_operator(target) as transport:
        stub = TrustServiceStub(transport.channel)
        request = pb.ReinstateToolRequest(name=name, reason=reason)
        answer = transport.unary(stub.ReinstateTool, request, None, repeatable=False)
    _print_versions("reinstated", name, list(answer.versions), as_json)


def _print_stage(name: str, answer: pb.PromoteToolResponse | pb.DemoteToolResponse, as_json: bool) -> None:
    from toolmesh.registry.v1 import trust_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import enum_label, message_to_dict

    if as_json:
        output.print_json(message_to_dict(answer))
    else:
        output.out().print(output.text(f"{name} is {enum_label(pb.ContributionStage.DESCRIPTOR, answer.stage)}"))


def _print_versions(what: str, name: str, versions: list[str], as_json: bool) -> None:
    if as_json:
        output.print_json({"versions": versions})
        return
    shown = ", ".join(short_name(each) for each in versions) or "no version changed"
    output.out().print(output.text(f"{name} is {what}: {shown}"))


def _print_trust(response: pb.GetTrustScoreResponse, stage: pb.GetStageResponse) -> None:
    from toolmesh.registry.v1 import trust_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import enum_label, format_time

    score, console = response.score, output.out()
    console.print(
        output.text(
            (short_name(score.tool), "bold"),
            f"  {score.score:.3f}",
            (f"  = {score.undecayed:.3f} x {score.decay:.3f} since {format_time(score.last_verified_time)}", "dim"),
        )
    )
    if response.revoked:
        console.print("revoked", style="bold red")
    rows = [
        (
            enum_label(pb.TrustSignal.DESCRIPTOR, each.signal).replace("_", " "),
            f"{each.value:.3f}",
            f"{each.weight:.2f}",
            f"{each.contribution:.4f}",
            each.missing or ", ".join(f"{name} {value}" for name, value in sorted(each.facts.items())),
        )
        for each in score.components
    ]
    output.print_table(("SIGNAL", "VALUE", "WEIGHT", "ADDS", "BECAUSE"), rows)
    stages = pb.ContributionStage.DESCRIPTOR
    console.print()
    console.print(output.text(f"stage {enum_label(stages, response.stage)}"))
    if stage.next:
        headings = (f"FOR {enum_label(stages, stage.next).upper()}", "MET", "FOUND")
        gates = [(each.gate.replace("_", " "), "yes" if each.met else "no", each.found) for each in stage.gates]
        output.print_table(headings, gates)
