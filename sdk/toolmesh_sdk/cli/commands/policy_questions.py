"""`toolmesh policy ask` and `test`: what a policy set would decide, before it decides anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.admin_connection import as_admin
from toolmesh_sdk.cli.inputs.json_input import parse_json
from toolmesh_sdk.cli.inputs.options import split_list
from toolmesh_sdk.cli.inputs.policy_cases import PolicyCase, check_facts, questions_of, read_cases
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.cli.views.policy_text import (
    PolicySources,
    listed_problems,
    omitted_count,
    print_problems,
    read_documents,
)
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh.authz.v1 import policy_service_pb2 as policy_pb

    from toolmesh_sdk._wire.transport import Transport
    from toolmesh_sdk.cli.inputs.policy_cases import ToolFacts

# The contract takes this many questions at once.
_MOST = 100
_ASK = "ask"

Rules = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules", help="Documents to try on top of the set, files or folders; repeatable. Nothing is stored."
    ),
]
Base = Annotated[str, typer.Option("--set", help="The set to ask, a number; default: the active one.")]
Remove = Annotated[list[str] | None, typer.Option("--remove", help="A document of the set to leave out; repeatable.")]


@report_errors
@add_target_options(timeout=60.0)
def ask(
    tool: Annotated[str, typer.Option(help="The tool: NAME or NAME@VERSION.")],
    sub: Annotated[str, typer.Option(help="The subject, a DID.")],
    arguments: Annotated[str, typer.Option(help="The arguments, a JSON object; without them they are unknown.")] = "",
    agent: Annotated[str, typer.Option(help="The agent that acts for the subject, a DID.")] = "",
    tenant: Annotated[str, typer.Option(help="The tenant of the subject.")] = "",
    trust: Annotated[int, typer.Option(min=0, max=100, help="The trust level of the subject.")] = 0,
    groups: Annotated[str, typer.Option(help="The groups of the subject, separated by commas.")] = "",
    scopes: Annotated[str, typer.Option(help="The scopes of the token, separated by commas.")] = "",
    resources: Annotated[str, typer.Option(help="The resources that the arguments name, separated by commas.")] = "",
    session: Annotated[str, typer.Option(help="The session of the call.")] = "",
    labels: Annotated[str, typer.Option(help="The labels of the session, separated by commas.")] = "",
    environment: Annotated[str, typer.Option(help="local, dev, staging or prod; default: that of the mesh.")] = "",
    time: Annotated[str, typer.Option(help="The time of the call, ISO 8601; default: now.")] = "",
    wildcard: Annotated[bool, typer.Option("--wildcard", help="The token covers the tool only by `*`.")] = False,
    fact: Annotated[
        list[str] | None,
        typer.Option(help="An attribute of the tool, NAME=JSON; repeatable. With mutation_class it need not exist."),
    ] = None,
    base: Base = "",
    rules: Rules = None,
    remove: Remove = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Ask a policy set about a made-up call.

    Policy alone answers, as if a token covered the call. Nothing is recorded or stored.

    \b
    Examples:
      toolmesh policy ask --sub did:web:example.com:alice --tool echo --arguments '{"text": "hello"}'
      toolmesh policy ask --sub did:web:example.com:alice --tool acme.pay --fact mutation_class=read_only --wildcard
    """
    case = PolicyCase(
        tool=tool,
        subject=sub,
        agent=agent,
        tenant=tenant,
        trust_level=trust,
        groups=split_list(groups),
        scopes=split_list(scopes),
        arguments=_object(arguments),
        resources=split_list(resources),
        session=session,
        labels=split_list(labels),
        environment=environment,
        time=time,
        wildcard=wildcard,
        facts=_facts(fact or ()),
    )
    [answer] = _ask([case], target, base, rules, remove, hint="--fact")
    if as_json:
        output.print_json(_document(answer))
        return
    console = output.out()
    by = ", ".join(answer.determining_policies)
    console.print(output.text((answer.outcome.replace("_", " "), "bold"), (f"  {by}", "dim")))
    for reason in answer.reasons:
        console.print(output.text(f"  {reason}"))


@report_errors
@add_target_options(timeout=60.0)
def run_cases(
    cases: Annotated[Path, typer.Argument(metavar="CASES", help="The YAML file of cases.")],
    base: Base = "",
    rules: Rules = None,
    remove: Remove = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Compare a policy set with cases of a file.

    Each case is a made-up call with its expected outcome. Exits with 1 if one differs.

    \b
    Examples:
      toolmesh policy test examples/policies/cases.yaml
      toolmesh policy test examples/policies/cases.yaml --rules examples/policies
    """
    asked = read_cases(cases)
    answers = _ask(asked, target, base, rules, remove)
    failures = [_difference(case, answer) for case, answer in zip(asked, answers, strict=True)]
    if as_json:
        rows = [
            {"name": case.name, "passed": not failure, "expect": case.expect, **_document(answer)}
            for case, answer, failure in zip(asked, answers, failures, strict=True)
        ]
        output.print_json({"cases": rows, "failed": sum(map(bool, failures))})
    else:
        _print_cases(asked, answers, failures)
    if any(failures):
        raise typer.Exit(1)


def _ask(
    cases: Sequence[PolicyCase],
    target: Target,
    base: str,
    rules: Sequence[Path] | None,
    remove: Sequence[str] | None,
    *,
    hint: str = "CASES",
) -> list[policy_pb.PolicyAnswer]:
    """Return an answer for each case."""
    sources = read_documents(rules or ())
    with as_admin(target) as registry:
        questions = questions_of(cases, _tool_facts(registry), hint)
    with as_admin(target, service="authz") as transport:
        try:
            return list(_answers(transport, questions, base, sources, remove or ()))
        except ToolmeshError as error:
            if problems := listed_problems(error):
                print_problems(problems, sources, left_out=omitted_count(error))
                raise typer.Exit(1) from None
            raise


def _answers(
    transport: Transport,
    questions: Sequence[policy_pb.PolicyQuestion],
    base: str,
    sources: PolicySources,
    remove: Sequence[str],
) -> Iterator[policy_pb.PolicyAnswer]:
    from toolmesh.authz.v1 import policy_service_pb2 as pb
    from toolmesh.authz.v1.policy_service_pb2_grpc import PolicyServiceStub

    name = base if not base or base.startswith("policySets/") else f"policySets/{base}"
    stub = PolicyServiceStub(transport.channel)
    for start in range(0, len(questions), _MOST):
        request = pb.AskPolicySetRequest(
            questions=questions[start : start + _MOST],
            base="" if base == "active" else name,
            documents=sources.messages(),
            removed=remove,
        )
        yield from transport.unary(stub.AskPolicySet, request, None, repeatable=True).answers


def _tool_facts(registry: Transport) -> ToolFacts:
    """Return a function that finds the facts of tools in the registry, each once."""
    from functools import cache

    from toolmesh.authz.v1.authz_service_pb2 import CallFacts
    from toolmesh.registry.v1 import registry_service_pb2 as pb
    from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceStub

    from toolmesh_sdk.cli.inputs.tool_facts import facts_of_version

    stub = RegistryServiceStub(registry.channel)

    @cache
    def read(name: str) -> CallFacts:
        tool, _, version = name.partition("@")
        request = pb.ResolveToolRequest(tool=tool, version_constraint=version)
        return facts_of_version(registry.unary(stub.ResolveTool, request, None, repeatable=True).version)

    def copy(name: str) -> CallFacts:
        facts = CallFacts()
        facts.CopyFrom(read(name))
        return facts

    return copy


def _object(text: str) -> dict[str, Any] | None:
    value = parse_json(text, "--arguments") if text else None
    if value is not None and not isinstance(value, dict):
        raise typer.BadParameter("the arguments are a JSON object", param_hint="--arguments")
    return value


def _facts(pairs: Sequence[str]) -> dict[str, Any]:
    facts = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise typer.BadParameter(f"{pair} is not NAME=JSON", param_hint="--fact")
        try:
            facts[name] = json.loads(value)
        except ValueError:
            facts[name] = value
    check_facts(_ASK, facts, "--fact")
    return facts


def _difference(case: PolicyCase, answer: policy_pb.PolicyAnswer) -> str:
    """Return how an answer differs from the expected one; empty if it does not."""
    if answer.outcome != case.expect:
        return f"expected {case.expect}, got {answer.outcome}"
    if case.by and case.by not in answer.determining_policies:
        return f"expected {case.by} to determine it, not {', '.join(answer.determining_policies) or 'the default'}"
    return ""


def _print_cases(
    cases: Sequence[PolicyCase], answers: Sequence[policy_pb.PolicyAnswer], failures: Sequence[str]
) -> None:
    console = output.out()
    for number, (case, answer, failure) in enumerate(zip(cases, answers, failures, strict=True), 1):
        name = case.name or f"{case.subject} calls {case.tool}"
        mark, style = ("FAILED", "bold red") if failure else ("ok", "green")
        console.print(output.text((f"{mark:<8}", style), f"{number}. {name}"))
        if failure:
            console.print(output.text(f"        {failure}: {' '.join(answer.reasons)}"))
    failed = sum(map(bool, failures))
    console.print(output.text(f"{len(cases)} cases, {failed} failed"))


def _document(answer: policy_pb.PolicyAnswer) -> Any:
    from toolmesh_sdk.cli.views.documents import message_to_dict

    return message_to_dict(answer)
