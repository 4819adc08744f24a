"""`toolmesh tools trust` and its siblings: how far a tool can be trusted, and what follows from it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.commands.tools.attestations import audited, verify
from toolmesh_sdk.cli.commands.tools.lifecycle import Reason, Version
from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.admin_connection import as_caller, as_steward, short, version_name
from toolmesh_sdk.cli.inputs.target import Place
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.registry.v1 import trust_service_pb2 as pb


Tool = Annotated[str, typer.Argument(metavar="NAME", help="The tool as a whole, such as echo or acme.send_email.")]


class Stage(StrEnum):
    """How far a tool has come."""

    SUBMITTED = "submitted"
    SANDBOX = "sandbox"
    BETA = "beta"
    GA = "ga"


def add_to(app: typer.Typer) -> None:
    """Add the commands to a group."""
    for command in (trust, rate, verify, audited, promote, demote, revoke, reinstate):
        app.command()(command)


@reported
def trust(
    name: Tool,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Show how far a tool can be trusted, signal by signal, and what its next stage asks for."""
    from toolmesh.registry.v1 import trust_service_pb2 as pb
    from toolmesh.registry.v1.trust_service_pb2_grpc import TrustServiceStub

    from toolmesh_sdk.cli.views.documents import document

    with as_caller(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = TrustServiceStub(transport.channel)
        found = transport.unary(stub.GetTrustScore, pb.GetTrustScoreRequest(name=name), None, repeatable=True)
        stage = transport.unary(stub.GetStage, pb.GetStageRequest(name=name), None, repeatable=True)
    if as_json:
        output.print_json({**document(found), "next_stage": document(stage)})
    else:
        _describe(found, stage)


@reported
def rate(
    name: Version,
    stars: Annotated[int, typer.Argument(min=1, max=5, help="1 (bad) to 5 (good).")],
    comment: Annotated[str, typer.Option(help="Why, for people.")] = "",
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Rate a version; again, to change your mind."""
    from toolmesh.registry.v1 import trust_service_pb2 as pb
    from toolmesh.registry.v1.trust_service_pb2_grpc import TrustServiceStub

    from toolmesh_sdk.cli.views.documents import document

    request = pb.RateToolRequest(version=version_name(name), stars=stars, comment=comment)
    with as_caller(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = TrustServiceStub(transport.channel)
        answer = transport.unary(stub.RateTool, request, None, repeatable=True)
    if as_json:
        output.print_json(document(answer))
    else:
        output.out().print(f"{answer.average:.1f} of 5 on average; rated by {answer.ratings}")


@reported
def promote(
    name: Tool,
    reason: Reason = "",
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Move a tool to its next stage, if it meets every gate; otherwise all it does not meet is listed."""
    from toolmesh.registry.v1 import trust_service_pb2 as pb
    from toolmesh.registry.v1.trust_service_pb2_grpc import TrustServiceStub

    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = TrustServiceStub(transport.channel)
        request = pb.PromoteToolRequest(name=name, reason=reason)
        answer = transport.unary(stub.PromoteTool, request, None, repeatable=False)
    _print_stage(name, answer, as_json)


@reported
def demote(
    name: Tool,
    stage: Annotated[Stage, typer.Argument(help="The earlier stage to go back to.")],
    reason: Reason,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Move a tool back to an earlier stage."""
    from toolmesh.registry.v1 import trust_service_pb2 as pb
    from toolmesh.registry.v1.trust_service_pb2_grpc import TrustServiceStub

    number = pb.ContributionStage.Value(f"CONTRIBUTION_STAGE_{stage.upper()}")
    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = TrustServiceStub(transport.channel)
        request = pb.DemoteToolRequest(name=name, to_stage=number, reason=reason)
        answer = transport.unary(stub.DemoteTool, request, None, repeatable=False)
    _print_stage(name, answer, as_json)


@reported
def revoke(
    name: Tool,
    reason: Reason,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Take a tool out of use across the mesh, at once; only the operator brings it back."""
    from toolmesh.registry.v1 import trust_service_pb2 as pb
    from toolmesh.registry.v1.trust_service_pb2_grpc import TrustServiceStub

    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = TrustServiceStub(transport.channel)
        request = pb.RevokeToolRequest(name=name, reason=reason)
        answer = transport.unary(stub.RevokeTool, request, None, repeatable=True)
    _print_versions("revoked", name, list(answer.versions), as_json)


@reported
def reinstate(
    name: Tool,
    reason: Reason,
    timeout: options.Timeout = 30.0,
    state: options.State = None,
    as_json: options.Json = False,
) -> None:
    """Take a revocation back, as the operator of the local mesh."""
    from toolmesh.registry.v1 import trust_service_pb2 as pb
    from toolmesh.registry.v1.trust_service_pb2_grpc import TrustServiceStub

    with as_steward(Place(state=state), timeout) as transport:
        stub = TrustServiceStub(transport.channel)
        request = pb.ReinstateToolRequest(name=name, reason=reason)
        answer = transport.unary(stub.ReinstateTool, request, None, repeatable=False)
    _print_versions("reinstated", name, list(answer.versions), as_json)


def _print_stage(name: str, answer: pb.PromoteToolResponse | pb.DemoteToolResponse, as_json: bool) -> None:
    from toolmesh.registry.v1 import trust_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import document, word

    if as_json:
        output.print_json(document(answer))
    else:
        output.out().print(output.text(f"{name} is {word(pb.ContributionStage.DESCRIPTOR, answer.stage)}"))


def _print_versions(what: str, name: str, versions: list[str], as_json: bool) -> None:
    if as_json:
        output.print_json({"versions": versions})
        return
    shown = ", ".join(short(each) for each in versions) or "no version changed"
    output.out().print(output.text(f"{name} is {what}: {shown}"))


def _describe(found: pb.GetTrustScoreResponse, stage: pb.GetStageResponse) -> None:
    from toolmesh.registry.v1 import trust_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import moment, word

    score, console = found.score, output.out()
    console.print(
        output.text(
            (short(score.tool), "bold"),
            f"  {score.score:.3f}",
            (f"  = {score.undecayed:.3f} x {score.decay:.3f} since {moment(score.last_verified_time)}", "dim"),
        )
    )
    if found.revoked:
        console.print("revoked", style="bold red")
    rows = [
        (
            word(pb.TrustSignal.DESCRIPTOR, each.signal).replace("_", " "),
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
    console.print(output.text(f"stage {word(stages, found.stage)}"))
    if stage.next:
        headings = (f"FOR {word(stages, stage.next).upper()}", "MET", "FOUND")
        gates = [(each.gate.replace("_", " "), "yes" if each.met else "no", each.found) for each in stage.gates]
        output.print_table(headings, gates)
