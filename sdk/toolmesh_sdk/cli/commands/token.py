"""`toolmesh token`: mints, exchanges, delegates, inspects and revokes capability tokens."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs import token_bounds as bounds
from toolmesh_sdk.cli.inputs.admin_connection import as_admin, as_operator
from toolmesh_sdk.cli.inputs.claims import decode_claims
from toolmesh_sdk.cli.inputs.json_input import read_stdin
from toolmesh_sdk.cli.inputs.options import refuse_blank, split_list
from toolmesh_sdk.cli.inputs.target import LOCAL_SCOPES, LOCAL_USER, Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_operator_options, add_target_options
from toolmesh_sdk.cli.inputs.timestamps import parse_seconds
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.cli.views.token_report import describe_claims
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh_sdk.token_request import Bounds

app = typer.Typer(help="Mint, exchange, delegate and revoke tokens.", no_args_is_help=True)
TIMEOUT = 10.0


@app.command()
@report_errors
@add_operator_options(timeout=TIMEOUT)
def mint(
    sub: Annotated[str, typer.Option(help="The subject of the token, a DID.")] = LOCAL_USER,
    tools: Annotated[str, typer.Option(help="Tool patterns, separated by commas.", callback=refuse_blank)] = "*",
    scopes: Annotated[str, typer.Option(help="Scopes, separated by commas.")] = ",".join(LOCAL_SCOPES),
    ttl: Annotated[str, typer.Option(help="The lifetime: 90s, 15m, 1h, 2d.")] = "1h",
    tenant: Annotated[str | None, typer.Option(help="The tenant of the subject.", callback=refuse_blank)] = None,
    groups: bounds.Groups = None,
    trust: Annotated[int, typer.Option(min=0, max=100, help="The trust level of the subject.")] = 0,
    audience: bounds.Audience = None,
    resources: bounds.Resources = None,
    constraints: bounds.Constraints = None,
    calls: bounds.Calls = None,
    cost_micros: bounds.Cost = None,
    running: bounds.Running = None,
    depth: Annotated[int | None, typer.Option(min=0, max=8, help="How many times it may be delegated.")] = None,
    session: bounds.Session = None,
    proof: bounds.Proof = None,
    dpop: bounds.Dpop = False,
    raw: bounds.Raw = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Mint a token, as the operator.

    \b
    Examples:
      toolmesh token mint --tools 'acme.*' --scopes tools:call --ttl 15m --raw
      toolmesh token mint --context prod --sub did:web:example.com:alice --dpop --raw
    """
    from toolmesh_sdk.admin import TokenWishes, issue_token

    wishes: TokenWishes = {
        "sub": sub,
        "tools": split_list(tools),
        "scopes": split_list(scopes),
        "ttl_seconds": parse_seconds(ttl, "--ttl"),
        "tenant": tenant or "",
        "groups": split_list(groups),
        "trust": trust,
        "audience": split_list(audience),
        "depth": depth,
        "bounds": bounds.build_bounds(
            resources=resources,
            constraints=constraints,
            calls=calls,
            cost_micros=cost_micros,
            running=running,
            session=session,
            proof=bounds.bound_proof(proof, dpop=dpop),
        ),
    }
    with as_operator(target, service="authz") as transport:
        token = issue_token(transport, timeout=target.timeout, **wishes)
    _print_token(token, raw=raw, as_json=as_json)


@app.command()
@report_errors
@add_target_options(timeout=TIMEOUT)
def exchange(
    subject_token: Annotated[
        str, typer.Argument(metavar="TOKEN", help="The token of an issuer that the mesh trusts, or - for stdin.")
    ],
    scopes: Annotated[
        str | None,
        typer.Option(help="Scopes, separated by commas; default: all that are granted.", callback=refuse_blank),
    ] = None,
    ttl: Annotated[
        str | None,
        typer.Option(help="The lifetime: 90s, 15m, 1h; default: as long as is granted.", callback=refuse_blank),
    ] = None,
    proof: bounds.Proof = None,
    dpop: bounds.Dpop = False,
    raw: bounds.Raw = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Exchange another issuer's token for one of ours.

    The issuer, such as an OpenID provider, must be one that the mesh trusts.

    \b
    Example:
      toolmesh token exchange "$ID_TOKEN" --dpop --raw
    """
    lifetime = None if ttl is None else parse_seconds(ttl, "--ttl")
    bound_to = bounds.bound_proof(proof, dpop=dpop) or ""
    # The request is authorized by the other issuer's token alone.
    with open_client(replace(target, token="")) as client:
        answer = client.exchange(
            _read_token(subject_token), scopes=split_list(scopes), ttl_seconds=lifetime, proof=bound_to
        )
    _print_token(answer.token, raw=raw, as_json=as_json)


@app.command()
@report_errors
@add_target_options(timeout=TIMEOUT)
def delegate(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The DID of the agent that will act for you.")],
    tools: bounds.Tools = None,
    scopes: bounds.Scopes = "",
    ttl: bounds.Lifetime = None,
    groups: bounds.Groups = None,
    trust: Annotated[int | None, typer.Option(min=0, max=100, help="The trust level of the agent.")] = None,
    audience: bounds.Audience = None,
    resources: bounds.Resources = None,
    constraints: bounds.Constraints = None,
    calls: bounds.Calls = None,
    cost_micros: bounds.Cost = None,
    running: bounds.Running = None,
    depth: Annotated[int | None, typer.Option(min=0, max=8, help="How many times it may be delegated again.")] = None,
    session: bounds.Session = None,
    proof: bounds.Proof = None,
    bind_agent_key: Annotated[
        bool, typer.Option("--bind-agent-key", help="Bind the token to the key of the DID.")
    ] = False,
    raw: bounds.Raw = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Delegate a part of your token to an agent.

    \b
    Example:
      toolmesh token delegate did:web:example.com:bots:planner --tools 'echo' --ttl 10m --raw
    """
    limits = bounds.build_bounds(
        resources=resources,
        constraints=constraints,
        calls=calls,
        cost_micros=cost_micros,
        running=running,
        session=session,
        proof=proof,
    )
    _add_limits(limits, tools=tools, scopes=scopes, ttl=ttl, groups=groups, trust=trust, audience=audience)
    with open_client(target) as client:
        delegated = client.delegate(agent, depth=depth, bind_to_agent_key=bind_agent_key, **limits).token
    _print_token(delegated, raw=raw, as_json=as_json)


@app.command()
@report_errors
@add_target_options(timeout=TIMEOUT)
def narrow(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The only tool that it may call, such as echo@^1.")],
    scopes: bounds.Scopes = "",
    ttl: bounds.Lifetime = None,
    resources: bounds.Resources = None,
    constraints: bounds.Constraints = None,
    calls: bounds.Calls = None,
    session: bounds.Session = None,
    proof: bounds.Proof = None,
    raw: bounds.Raw = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Narrow your token to one tool.

    The result cannot be delegated or narrowed further.

    \b
    Example:
      toolmesh token narrow echo --ttl 5m --raw
    """
    limits = bounds.build_bounds(
        resources=resources, constraints=constraints, calls=calls, session=session, proof=proof
    )
    _add_limits(limits, scopes=scopes, ttl=ttl)
    with open_client(target) as client:
        narrowed = client.narrow(tool, **limits).token
    _print_token(narrowed, raw=raw, as_json=as_json)


@app.command()
@report_errors
@add_operator_options(timeout=TIMEOUT)
def inspect(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The token, or - for stdin.")],
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the mesh.")] = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Decode a token and show its claims.

    The signature is not verified here. The mesh is asked whether it accepts the token, if it runs here or --cert
    reaches its authz.

    \b
    Example:
      toolmesh token mint --raw | toolmesh token inspect -
    """
    text = _read_token(token)
    claims = decode_claims(text)
    asked = not offline and (target.cert is not None or (target.is_local() and target.read_runtime() is not None))
    answer = _introspect(target, text) if asked else None
    if as_json:
        output.print_json({"verified": False, "claims": claims, "introspection": answer})
        return
    _print_claims(claims)
    console = output.err()
    console.print("Decoded, not verified: the claims may be forged.", style="yellow")
    if answer is not None:
        console.print(f"The mesh: {_verdict(answer)}", markup=False)


@app.command()
@report_errors
@add_target_options(timeout=TIMEOUT)
def revoke(
    what: Annotated[str, typer.Argument(metavar="TOKEN|ID", help="A token, - for stdin, or a token id.")] = "",
    subject: Annotated[
        str, typer.Option(help="Revoke every token of this subject or agent issued so far, a DID.")
    ] = "",
    key: Annotated[str, typer.Option(help="Revoke every token that this key signed.")] = "",
    reason: Annotated[str, typer.Option(help="The reason; recorded.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Revoke a token and all tokens derived from it.

    --subject revokes all tokens of a subject, --key all tokens that a key signed. The authority is --cert, else
    --token, else the operator's certificate of the local mesh.

    \b
    Examples:
      toolmesh token revoke "$TOKEN" --reason 'left the team'
      toolmesh token revoke --subject did:web:example.com:alice
    """
    from toolmesh.authz.v1 import token_service_pb2 as pb
    from toolmesh.authz.v1.token_service_pb2_grpc import TokenServiceStub

    if sum(map(bool, (what, subject, key))) != 1:
        raise typer.BadParameter("give exactly one: a token or its id, --subject, or --key", param_hint="TOKEN")
    revoked = {"subject": subject} if subject else {"key_id": key} if key else {"token_id": _token_id(what)}
    request = pb.RevokeTokenRequest(reason=reason, **revoked)
    with as_admin(target, service="authz") as transport:
        stub = TokenServiceStub(transport.channel)
        revocation = transport.unary(stub.RevokeToken, request, target.timeout, repeatable=True).revocation
    if as_json:
        output.print_json({"revocation": revocation.name, "reason": revocation.reason, "by": revocation.revoked_by})
        return
    output.err().print(output.text(("Revoked", "bold"), f" by {revocation.revoked_by} as {revocation.name}."))


def _add_limits(
    limits: Bounds,
    *,
    tools: str | None = None,
    scopes: str = "",
    ttl: str | None = None,
    groups: str | None = None,
    trust: int | None = None,
    audience: str | None = None,
) -> None:
    values: dict[str, Any] = {
        "tools": split_list(tools),
        "scopes": split_list(scopes),
        "ttl_seconds": None if ttl is None else parse_seconds(ttl, "--ttl"),
        "groups": split_list(groups),
        "trust": trust,
        "audience": split_list(audience),
    }
    limits.update({name: value for name, value in values.items() if value not in (None, [])})  # type: ignore[typeddict-item]


def _read_token(token: str) -> str:
    return (read_stdin("TOKEN") if token == options.STDIN else token).strip()


def _token_id(what: str) -> str:
    text = _read_token(what)
    # A token id has no dots; a token has two.
    return str(decode_claims(text).get("jti", "")) if text.count(".") == 2 else text


def _introspect(target: Target, token: str) -> dict[str, Any]:
    from toolmesh_sdk.admin import introspect_token

    try:
        with as_operator(target, service="authz") as transport:
            response = introspect_token(transport, token, timeout=target.timeout)
    except ToolmeshError as error:
        return {"active": None, "error_code": error.code}
    return {"active": response.active, "error_code": response.error_code}


def _verdict(answer: dict[str, Any]) -> str:
    if answer["active"] is None:
        return "could not be asked"
    return "accepted" if answer["active"] else f"not accepted ({answer['error_code']})"


def _print_token(token: str, *, raw: bool, as_json: bool) -> None:
    if as_json:
        output.print_json({"token": token, "claims": decode_claims(token)})
        return
    sys.stdout.write(token + "\n")
    if not raw:
        _print_claims(decode_claims(token))


def _print_claims(claims: dict[str, Any]) -> None:
    # The claims go to stderr, so that a pipe gets only the token.
    console = output.err()
    for name, value in describe_claims(claims, datetime.now(UTC)):
        console.print(output.text((f"  {name:<10}", "dim"), value))
