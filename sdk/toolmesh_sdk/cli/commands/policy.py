"""`toolmesh policy`: put, check, activate and explain the rules of a mesh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.admin_connection import as_steward, short
from toolmesh_sdk.cli.inputs.bounds import said
from toolmesh_sdk.cli.inputs.target import Place
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.cli.views.policy_text import (
    Sources,
    changes_between,
    left_out_of,
    lines_of,
    print_problems,
    problems_of,
    read_documents,
)
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh.authz.v1 import policy_service_pb2 as policy_pb
    from toolmesh.authz.v1.policy_service_pb2_grpc import PolicyServiceStub

    from toolmesh_sdk._wire.transport import Transport

app = typer.Typer(help="Put, check, activate and explain policies.", no_args_is_help=True)

Paths = Annotated[
    list[Path], typer.Argument(metavar="PATH...", help="Files (*.cedar, limits.json), or folders of them.")
]
Set = Annotated[str, typer.Argument(metavar="SET", help="The set: its number, or `active`.")]
Base = Annotated[str, typer.Option("--base", help="The set to begin with; without it, the active one.")]
Remove = Annotated[list[str], typer.Option("--remove", help="A document of that set to leave out; may be repeated.")]
Whole = Annotated[bool, typer.Option("--replace", help="Leave out everything that is not among the paths.")]
Expected = Annotated[
    str | None, typer.Option("--expect", callback=said, help="Only if this set is still the active one.")
]


@app.command()
@reported
def put(
    paths: Paths,
    comment: Annotated[str, typer.Option("--comment", "-m", help="What it is for.")] = "",
    base: Base = "",
    remove: Remove = [],  # noqa: B006  Typer copies it
    replace: Whole = False,
    timeout: options.Timeout = 60.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Put documents on top of a set. The new set decides nothing until it is activated."""
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    sources = read_documents(paths)
    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout, service="authz") as transport:
        removed = _left_out(transport, sources, base, remove, whole=replace)
        request = pb.PutPolicyRequest(
            documents=sources.messages(), removed=removed, base=_set_name(base), comment=comment
        )
        try:
            answer = transport.unary(_stub(transport).PutPolicy, request, None, repeatable=True)
        except ToolmeshError as error:
            if (problems := problems_of(error)) and not as_json:
                print_problems(problems, sources, left_out=left_out_of(error))
                raise typer.Exit(1) from None
            raise
    _print_set(answer.policy_set, as_json)


@app.command()
@reported
def validate(
    paths: Paths,
    base: Base = "",
    remove: Remove = [],  # noqa: B006  Typer copies it
    replace: Whole = False,
    timeout: options.Timeout = 60.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Say what is wrong with documents, each with line and column: exit code 1. Nothing is kept."""
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import document

    sources = read_documents(paths)
    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout, service="authz") as transport:
        removed = _left_out(transport, sources, base, remove, whole=replace)
        request = pb.ValidatePolicyRequest(documents=sources.messages(), removed=removed, base=_set_name(base))
        found = transport.unary(_stub(transport).ValidatePolicy, request, None, repeatable=True).problems
    if as_json:
        output.print_json({"problems": [document(each) for each in found]})
    elif found:
        print_problems(found, sources)
    else:
        output.out().print(output.text("Nothing is wrong."))
    if found:
        raise typer.Exit(1)


@app.command("list")
@reported
def list_sets(
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many of the newest.")] = 20,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """List sets, newest first."""
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import document, moment

    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout, service="authz") as transport:
        found = list(islice(_sets(transport, pb.ListPolicySetsRequest(page_size=min(number, 1000))), number))
    if as_json:
        output.print_json({"policy_sets": [document(each) for each in found]})
        return
    rows = [
        (
            _number(each.name),
            "active" if each.active else "",
            str(each.policy_count),
            moment(each.put_time),
            each.put_by,
            each.comment,
        )
        for each in found
    ]
    output.print_table(("SET", "", "POLICIES", "PUT", "BY", "COMMENT"), rows)


@app.command()
@reported
def show(
    name: Set = "active",
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Show a set with its documents."""
    from toolmesh_sdk.cli.views.documents import document

    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout, service="authz") as transport:
        found = _get(transport, name)
    if as_json:
        output.print_json({"policy_set": document(found)})
        return
    _print_set(found, as_json=False)
    for each in found.documents:
        output.out().print()
        output.out().print(output.text((f"--- {each.name}", "bold")))
        for line in lines_of(each.text):
            output.out().print(output.text(line))


@app.command()
@reported
def activate(
    name: Set,
    expect: Expected = None,
    timeout: options.Timeout = 60.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Make a set the one that is asked, and say what changes. All replicas follow within a second."""
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout, service="authz") as transport:
        before, after = _get(transport, "active"), _get(transport, name)
        # Whoever activates has seen what changes; if that is no longer true, somebody else was faster.
        request = pb.ActivatePolicySetRequest(name=after.name, expected_active=_set_name(expect or "") or before.name)
        answer = transport.unary(_stub(transport).ActivatePolicySet, request, None, repeatable=True)
    _print_change(before, after, answer.policy_set, as_json)


@app.command()
@reported
def rollback(
    expect: Expected = None,
    timeout: options.Timeout = 60.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Make the set active that was active before; again, the one before that."""
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout, service="authz") as transport:
        before = _get(transport, "active")
        request = pb.RollbackPolicySetRequest(expected_active=_set_name(expect or "") or before.name)
        answer = transport.unary(_stub(transport).RollbackPolicySet, request, None, repeatable=False)
        after = _get(transport, answer.policy_set.name)
    _print_change(before, after, answer.policy_set, as_json)


@app.command()
@reported
def replay(
    name: Set,
    number: Annotated[
        int, typer.Option("--number", "-n", min=1, max=1_000_000, help="How many of the last decisions.")
    ] = 10_000,
    timeout: options.Timeout = 600.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Ask a set the questions of the last decisions, and list what it would answer otherwise. Changes nothing."""
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import document

    flips: list[policy_pb.Flip] = []
    last = pb.ReplayPolicySetResponse()
    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout, service="authz") as transport:
        request = pb.ReplayPolicySetRequest(name=_set_name(name), decisions=number)
        for last in _replayed(transport, request):
            flips.extend(last.flips)
            if not as_json:
                _print_progress(last, len(flips))
    if as_json:
        counts = {"replayed": last.replayed, "undecidable": last.undecidable}
        output.print_json({**counts, "flips": [document(each) for each in flips]})
        return
    if flips:
        headings = ("DECISION", "WHO", "TOOL", "WAS", "WOULD BE", "BECAUSE OF")
        output.print_table(headings, [_flip_row(each) for each in flips])
    told = f"{last.replayed} decisions asked again, {len(flips)} would flip"
    told += f", {last.undecidable} cannot be asked: what the set reads of them was not kept" if last.undecidable else ""
    output.err().print(output.text(told + "."))


@app.command()
@reported
def explain(
    decision: Annotated[str, typer.Argument(metavar="DECISION", help="Its id, or decisions/{id}.")],
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Say how a decision came about: the question, the answer, and what each policy made of it."""
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import document

    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout, service="authz") as transport:
        request = pb.ExplainDecisionRequest(name=f"decisions/{decision.removeprefix('decisions/')}")
        found = transport.unary(_stub(transport).ExplainDecision, request, None, repeatable=True)
    if as_json:
        output.print_json(document(found))
        return
    console = output.out()
    for line in found.summary.splitlines():
        console.print(output.text(line))
    for each in sorted(found.findings, key=lambda finding: not (finding.matched or finding.failed)):
        mark, style = ("failed", "red") if each.failed else ("matched", "bold") if each.matched else ("-", "dim")
        place = f"{each.document}:{each.line}"
        console.print(output.text((f"  {mark:<8}{each.effect:<15}{each.policy}", style), (f"  {place}", "dim")))
        if each.matched or each.failed:
            console.print(output.text((f"          {each.reason}", "dim")))


def _stub(transport: Transport) -> PolicyServiceStub:
    from toolmesh.authz.v1.policy_service_pb2_grpc import PolicyServiceStub

    return PolicyServiceStub(transport.channel)


def _get(transport: Transport, name: str) -> policy_pb.PolicySet:
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    request = pb.GetPolicySetRequest(name=_set_name(name))
    return transport.unary(_stub(transport).GetPolicySet, request, None, repeatable=True).policy_set


def _sets(transport: Transport, request: policy_pb.ListPolicySetsRequest) -> Iterator[policy_pb.PolicySet]:
    while True:
        page = transport.unary(_stub(transport).ListPolicySets, request, None, repeatable=True)
        yield from page.policy_sets
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return


def _left_out(transport: Transport, sources: Sources, base: str, remove: Sequence[str], *, whole: bool) -> list[str]:
    if not whole:
        return list(remove)
    kept = {each.name for each in _get(transport, base or "active").documents}
    return sorted(kept - set(sources.texts) | set(remove))


def _replayed(
    transport: Transport, request: policy_pb.ReplayPolicySetRequest
) -> Iterator[policy_pb.ReplayPolicySetResponse]:
    import grpc

    from toolmesh_sdk._wire.status import error_from_rpc
    from toolmesh_sdk._wire.trace import trace_id_of

    trace = transport.options.traceparent()
    metadata = transport.options.metadata(trace)
    try:
        yield from _stub(transport).ReplayPolicySet(request, timeout=transport.options.timeout, metadata=metadata)
    except grpc.RpcError as failure:
        raise error_from_rpc(failure, trace_id_of(trace)) from None


def _print_progress(message: policy_pb.ReplayPolicySetResponse, flips: int) -> None:
    console = output.err()
    if console.is_terminal:
        share = message.replayed / message.total if message.total else 1.0
        bar = ("#" * round(share * 30)).ljust(30, ".")
        console.print(f"\r[{bar}] {message.replayed}/{message.total}, {flips} flips", end="", markup=False)
        if message.replayed >= message.total:
            console.print()


def _print_set(found: policy_pb.PolicySet, as_json: bool) -> None:
    from toolmesh_sdk.cli.views.documents import document

    if as_json:
        output.print_json({"policy_set": document(found)})
        return
    active = ", active" if found.active else ""
    told = f"set {_number(found.name)}{active}: {found.policy_count} policies in {len(found.documents)} documents"
    output.out().print(output.text(told, (f"  {found.version}", "dim")))


def _print_change(
    before: policy_pb.PolicySet, after: policy_pb.PolicySet, active: policy_pb.PolicySet, as_json: bool
) -> None:
    from toolmesh_sdk.cli.views.documents import document

    if as_json:
        output.print_json({"before": before.name, "policy_set": document(active)})
        return
    console = output.out()
    console.print(output.text(f"set {_number(active.name)} is active; it was set {_number(before.name)}"))
    for mark, line in changes_between(before, after):
        console.print(output.text((f"  {mark} {line}", {"+": "green", "-": "red"}.get(mark, "dim"))))


def _flip_row(flip: policy_pb.Flip) -> tuple[str, ...]:
    return (
        flip.decision.removeprefix("decisions/"),
        flip.subject,
        short(flip.tool_version),
        flip.before,
        flip.after,
        ", ".join(flip.determining_policies) or "no policy permits it",
    )


def _set_name(name: str) -> str:
    """Return the resource name of a set that was written as its number."""
    return name if not name or name.startswith("policySets/") else f"policySets/{name}"


def _number(name: str) -> str:
    return name.removeprefix("policySets/")
