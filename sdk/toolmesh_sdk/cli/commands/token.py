"""`toolmesh token`: mints, delegates, inspects and revokes capability tokens."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs import token_bounds as bounds
from toolmesh_sdk.cli.inputs.claims import decode_claims
from toolmesh_sdk.cli.inputs.json_input import read_stdin
from toolmesh_sdk.cli.inputs.options import refuse_blank, split_list
from toolmesh_sdk.cli.inputs.target import LOCAL_SCOPES, LOCAL_USER, Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_local_options, add_target_options
from toolmesh_sdk.cli.inputs.timestamps import parse_seconds
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.cli.views.token_report import describe_claims
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh_sdk._wire.transport import Transport
    from toolmesh_sdk.token_request import Bounds

app = typer.Typer(help="Mint, delegate, inspect and revoke tokens.", no_args_is_help=True)
TIMEOUT = 10.0


@app.command()
@report_errors
@add_local_options(timeout=TIMEOUT)
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
    raw: bounds.Raw = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Mint a token on the local mesh.

    \b
    Example:
      toolmesh token mint --tools 'acme.*' --scopes tools:call --ttl 15m --raw
    """
    token = _mint(
        target.require_runtime(),
        timeout=target.timeout,
        sub=sub,
        tools=split_list(tools),
        scopes=split_list(scopes),
        ttl_seconds=parse_seconds(ttl, "--ttl"),
        tenant=tenant or "",
        groups=split_list(groups),
        trust=trust,
        audience=split_list(audience),
        depth=depth,
        bounds=bounds.build_bounds(
            resources=resources,
            constraints=constraints,
            calls=calls,
            cost_micros=cost_micros,
            running=running,
            session=session,
            proof=proof,
        ),
    )
    _print_token(token, raw=raw, as_json=as_json)


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
    """Delegate a part of your token to an agent."""
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
    """Narrow your token to one tool. The result cannot be delegated or narrowed further."""
    limits = bounds.build_bounds(
        resources=resources, constraints=constraints, calls=calls, session=session, proof=proof
    )
    _add_limits(limits, scopes=scopes, ttl=ttl)
    with open_client(target) as client:
        narrowed = client.narrow(tool, **limits).token
    _print_token(narrowed, raw=raw, as_json=as_json)


@app.command()
@report_errors
@add_local_options(timeout=TIMEOUT)
def inspect(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The token, or - for stdin.")],
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the local mesh.")] = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Decode a token and show its claims.

    The signature is not verified here; a running local mesh is asked whether it accepts the token.
    """
    text = _read_token(token)
    claims = decode_claims(text)
    runtime = None if offline else target.read_runtime()
    answer = _introspect(runtime, text, target.timeout) if runtime is not None else None
    if as_json:
        output.print_json({"verified": False, "claims": claims, "introspection": answer})
        return
    _print_claims(claims)
    console = output.err()
    console.print("Decoded, not verified: the claims may be forged.", style="yellow")
    if answer is not None:
        console.print(f"The local mesh: {_verdict(answer)}", markup=False)


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

    --subject revokes all tokens of a subject, --key all tokens that a key signed. The authority is --token, else the
    operator's certificate of the local mesh.
    """
    from toolmesh.authz.v1 import token_service_pb2 as pb
    from toolmesh.authz.v1.token_service_pb2_grpc import TokenServiceStub

    if sum(map(bool, (what, subject, key))) != 1:
        raise typer.BadParameter("give exactly one: a token or its id, --subject, or --key", param_hint="TOKEN")
    revoked = {"subject": subject} if subject else {"key_id": key} if key else {"token_id": _token_id(what)}
    request = pb.RevokeTokenRequest(reason=reason, **revoked)
    with _connect(target) as transport:
        stub = TokenServiceStub(transport.channel)
        revocation = transport.unary(stub.RevokeToken, request, target.timeout, repeatable=True).revocation
    if as_json:
        output.print_json({"revocation": revocation.name, "reason": revocation.reason, "by": revocation.revoked_by})
        return
    output.err().print(output.text(("Revoked", "bold"), f" by {revocation.revoked_by} as {revocation.name}."))


@contextmanager
def _connect(target: Target) -> Iterator[Transport]:
    """Connect with the given token, else as the operator of the local mesh."""
    from toolmesh_sdk.admin import operator

    if target.url or target.token is not None:
        with open_client(target) as client:
            yield client.transport
        return
    runtime = target.require_runtime()
    try:
        with operator(runtime) as transport:
            yield transport
    except (OSError, KeyError) as error:
        raise typer.BadParameter(f"the operator's certificate cannot be used: {error}", param_hint="--state") from None


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


def _mint(runtime: dict[str, Any], **options: Any) -> str:
    from toolmesh_sdk.admin import mint_token

    try:
        return mint_token(runtime, **options)
    except (OSError, KeyError) as error:
        raise typer.BadParameter(f"the operator's certificate cannot be used: {error}", param_hint="--state") from None


def _introspect(runtime: dict[str, Any], token: str, timeout: float) -> dict[str, Any]:
    from toolmesh_sdk.admin import introspect_token

    try:
        response = introspect_token(runtime, token, timeout=timeout)
    except ToolmeshError as error:
        return {"active": None, "error_code": error.code}
    except (OSError, KeyError):
        return {"active": None, "error_code": ""}
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
