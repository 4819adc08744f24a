"""`toolmesh policy`: uploads, validates, activates and explains policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.commands import policy_questions
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.admin_connection import as_admin
from toolmesh_sdk.cli.inputs.options import refuse_blank
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.tool_names import short_name
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.cli.views.policy_text import (
    PolicySources,
    diff_policy_sets,
    listed_problems,
    omitted_count,
    print_problems,
    read_documents,
    split_lines,
)
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh.authz.v1 import policy_service_pb2 as policy_pb
    from toolmesh.authz.v1.policy_service_pb2_grpc import PolicyServiceStub

    from toolmesh_sdk._wire.transport import Transport

app = typer.Typer(help="Upload, validate, activate and explain policies.", no_args_is_help=True)

Paths = Annotated[list[Path], typer.Argument(metavar="PATH", help="Files (*.cedar, limits.json), or folders of them.")]
Set = Annotated[str, typer.Argument(metavar="SET", help="The set: its number, or `active`.")]
Base = Annotated[str, typer.Option("--base", help="The set to start from; default: the active one.")]
Remove = Annotated[list[str], typer.Option("--remove", help="A document of that set to leave out; repeatable.")]
Replace = Annotated[bool, typer.Option("--replace", help="Leave out all documents that are not among the paths.")]
Expected = Annotated[
    str | None, typer.Option("--expect", callback=refuse_blank, help="Only if this set is still the active one.")
]


@app.command()
@report_errors
@add_target_options(timeout=60.0)
def put(
    paths: Paths,
    comment: Annotated[str, typer.Option("--comment", "-m", help="The purpose of the set.")] = "",
    base: Base = "",
    remove: Remove = [],  # noqa: B006  Typer copies it
    replace: Replace = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Upload documents as a new set. The set takes effect when it is activated.

    \b
    Example:
      toolmesh policy put rules/ -m 'payments need two signatures'
    """
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    sources = read_documents(paths)
    with as_admin(target, service="authz") as transport:
        removed = _removed_names(transport, sources, base, remove, whole=replace)
        request = pb.PutPolicyRequest(
            documents=sources.messages(), removed=removed, base=_set_name(base), comment=comment
        )
        try:
            answer = transport.unary(_stub(transport).PutPolicy, request, None, repeatable=True)
        except ToolmeshError as error:
            if (problems := listed_problems(error)) and not as_json:
                print_problems(problems, sources, left_out=omitted_count(error))
                raise typer.Exit(1) from None
            raise
    _print_set(answer.policy_set, as_json)


@app.command()
@report_errors
@add_target_options(timeout=60.0)
def validate(
    paths: Paths,
    base: Base = "",
    remove: Remove = [],  # noqa: B006  Typer copies it
    replace: Replace = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Check documents without storing them.

    Prints every problem with line and column; exits with 1 if there is one.

    \b
    Example:
      toolmesh policy validate rules/
    """
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import message_to_dict

    sources = read_documents(paths)
    with as_admin(target, service="authz") as transport:
        removed = _removed_names(transport, sources, base, remove, whole=replace)
        request = pb.ValidatePolicyRequest(documents=sources.messages(), removed=removed, base=_set_name(base))
        problems = transport.unary(_stub(transport).ValidatePolicy, request, None, repeatable=True).problems
    if as_json:
        output.print_json({"problems": [message_to_dict(problem) for problem in problems]})
    elif problems:
        print_problems(problems, sources)
    else:
        output.out().print(output.text("No problems."))
    if problems:
        raise typer.Exit(1)


@app.command("list")
@report_errors
@add_target_options()
def list_sets(
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="The number of sets to show.")] = 20,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """List policy sets, newest first.

    \b
    Example:
      toolmesh policy list
    """
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import format_time, message_to_dict

    with as_admin(target, service="authz") as transport:
        sets = list(islice(_list_all(transport, pb.ListPolicySetsRequest(page_size=min(number, 1000))), number))
    if as_json:
        output.print_json({"policy_sets": [message_to_dict(each) for each in sets]})
        return
    rows = [
        (
            _number(each.name),
            "active" if each.active else "",
            str(each.policy_count),
            format_time(each.put_time),
            each.put_by,
            each.comment,
        )
        for each in sets
    ]
    output.print_table(("SET", "", "POLICIES", "PUT", "BY", "COMMENT"), rows)


@app.command()
@report_errors
@add_target_options()
def show(name: Set = "active", *, target: Target, as_json: bool) -> None:
    """Show a policy set with its documents.

    \b
    Example:
      toolmesh policy show active
    """
    from toolmesh_sdk.cli.views.documents import message_to_dict

    with as_admin(target, service="authz") as transport:
        found = _get_set(transport, name)
    if as_json:
        output.print_json({"policy_set": message_to_dict(found)})
        return
    _print_set(found, as_json=False)
    for each in found.documents:
        output.out().print()
        output.out().print(output.text((f"--- {each.name}", "bold")))
        for line in split_lines(each.text):
            output.out().print(output.text(line))


@app.command()
@report_errors
@add_target_options(timeout=60.0)
def activate(name: Set, expect: Expected = None, *, target: Target, as_json: bool) -> None:
    """Activate a policy set and show what changes. All replicas follow within a second.

    \b
    Example:
      toolmesh policy activate 2
    """
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    with as_admin(target, service="authz") as transport:
        before, after = _get_set(transport, "active"), _get_set(transport, name)
        # The printed difference is against this set; the call fails if another set was activated in between.
        request = pb.ActivatePolicySetRequest(name=after.name, expected_active=_set_name(expect or "") or before.name)
        answer = transport.unary(_stub(transport).ActivatePolicySet, request, None, repeatable=True)
    _print_change(before, after, answer.policy_set, as_json)


@app.command()
@report_errors
@add_target_options(timeout=60.0)
def rollback(expect: Expected = None, *, target: Target, as_json: bool) -> None:
    """Activate the previously active policy set. Repeat it to go back further.

    \b
    Example:
      toolmesh policy rollback
    """
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    with as_admin(target, service="authz") as transport:
        before = _get_set(transport, "active")
        request = pb.RollbackPolicySetRequest(expected_active=_set_name(expect or "") or before.name)
        answer = transport.unary(_stub(transport).RollbackPolicySet, request, None, repeatable=False)
        after = _get_set(transport, answer.policy_set.name)
    _print_change(before, after, answer.policy_set, as_json)


@app.command()
@report_errors
@add_target_options(timeout=600.0)
def replay(
    name: Set,
    number: Annotated[
        int, typer.Option("--number", "-n", min=1, max=1_000_000, help="The number of recent decisions.")
    ] = 10_000,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Replay recent decisions against a policy set.

    Lists the decisions that would change; changes nothing itself.

    \b
    Example:
      toolmesh policy replay 2
    """
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import message_to_dict

    flips: list[policy_pb.Flip] = []
    last = pb.ReplayPolicySetResponse()
    with as_admin(target, service="authz") as transport:
        request = pb.ReplayPolicySetRequest(name=_set_name(name), decisions=number)
        for last in _stream_replay(transport, request):
            flips.extend(last.flips)
            if not as_json:
                _print_progress(last, len(flips))
    if as_json:
        counts = {"replayed": last.replayed, "undecidable": last.undecidable}
        output.print_json({**counts, "flips": [message_to_dict(each) for each in flips]})
        return
    if flips:
        headings = ("DECISION", "WHO", "TOOL", "WAS", "WOULD BE", "BECAUSE OF")
        output.print_table(headings, [_flip_row(each) for each in flips])
    summary = f"{last.replayed} decisions replayed, {len(flips)} would flip"
    if last.undecidable:
        summary += f", {last.undecidable} cannot be replayed: attributes that the set reads were not recorded"
    output.err().print(output.text(summary + "."))


@app.command()
@report_errors
@add_target_options()
def explain(
    decision: Annotated[str, typer.Argument(metavar="DECISION", help="The decision: its id, or decisions/{id}.")],
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Explain a decision: request, result and policies.

    \b
    Example:
      toolmesh policy explain decisions/0198c
    """
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import message_to_dict

    with as_admin(target, service="authz") as transport:
        request = pb.ExplainDecisionRequest(name=f"decisions/{decision.removeprefix('decisions/')}")
        found = transport.unary(_stub(transport).ExplainDecision, request, None, repeatable=True)
    if as_json:
        output.print_json(message_to_dict(found))
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


app.command()(policy_questions.ask)
app.command("test")(policy_questions.run_cases)


def _stub(transport: Transport) -> PolicyServiceStub:
    from toolmesh.authz.v1.policy_service_pb2_grpc import PolicyServiceStub

    return PolicyServiceStub(transport.channel)


def _get_set(transport: Transport, name: str) -> policy_pb.PolicySet:
    from toolmesh.authz.v1 import policy_service_pb2 as pb

    request = pb.GetPolicySetRequest(name=_set_name(name))
    return transport.unary(_stub(transport).GetPolicySet, request, None, repeatable=True).policy_set


def _list_all(transport: Transport, request: policy_pb.ListPolicySetsRequest) -> Iterator[policy_pb.PolicySet]:
    while True:
        page = transport.unary(_stub(transport).ListPolicySets, request, None, repeatable=True)
        yield from page.policy_sets
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return


def _removed_names(
    transport: Transport, sources: PolicySources, base: str, remove: Sequence[str], *, whole: bool
) -> list[str]:
    if not whole:
        return list(remove)
    current = {each.name for each in _get_set(transport, base or "active").documents}
    return sorted(current - set(sources.texts) | set(remove))


def _stream_replay(
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
    from toolmesh_sdk.cli.views.documents import message_to_dict

    if as_json:
        output.print_json({"policy_set": message_to_dict(found)})
        return
    active = ", active" if found.active else ""
    summary = f"set {_number(found.name)}{active}: {found.policy_count} policies in {len(found.documents)} documents"
    output.out().print(output.text(summary, (f"  {found.version}", "dim")))


def _print_change(
    before: policy_pb.PolicySet, after: policy_pb.PolicySet, active: policy_pb.PolicySet, as_json: bool
) -> None:
    from toolmesh_sdk.cli.views.documents import message_to_dict

    if as_json:
        output.print_json({"before": before.name, "policy_set": message_to_dict(active)})
        return
    console = output.out()
    console.print(output.text(f"set {_number(active.name)} is active; before it was set {_number(before.name)}"))
    for mark, line in diff_policy_sets(before, after):
        console.print(output.text((f"  {mark} {line}", {"+": "green", "-": "red"}.get(mark, "dim"))))


def _flip_row(flip: policy_pb.Flip) -> tuple[str, ...]:
    return (
        flip.decision.removeprefix("decisions/"),
        flip.subject,
        short_name(flip.tool_version),
        flip.before,
        flip.after,
        ", ".join(flip.determining_policies) or "no policy permits it",
    )


def _set_name(name: str) -> str:
    """Return the resource name of a set that is given as its number."""
    return name if not name or name.startswith("policySets/") else f"policySets/{name}"


def _number(name: str) -> str:
    return name.removeprefix("policySets/")
