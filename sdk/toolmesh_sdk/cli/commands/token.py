"""`toolmesh token`: make tokens, pass them on, read them, and take them back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.inputs import bounds, options
from toolmesh_sdk.cli.inputs.claims import claims_of, listed, seconds_of
from toolmesh_sdk.cli.inputs.json_input import stdin_text
from toolmesh_sdk.cli.inputs.target import LOCAL_SCOPES, LOCAL_USER, Place, open_client
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.cli.views.token_report import token_rows
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh_sdk._wire.transport import Transport
    from toolmesh_sdk.token_request import Bounds

app = typer.Typer(help="Make, pass on, read and revoke capability tokens.", no_args_is_help=True)
TIMEOUT = 10.0


@app.command()
@reported
def mint(
    sub: Annotated[str, typer.Option(help="Whose authority it is, a DID.")] = LOCAL_USER,
    tools: Annotated[
        str, typer.Option(help="What it may call: patterns, separated by commas.", callback=bounds.said)
    ] = "*",
    scopes: Annotated[str, typer.Option(help="What else it may do, separated by commas.")] = ",".join(LOCAL_SCOPES),
    ttl: Annotated[str, typer.Option(help="How long it holds: 90s, 15m, 1h, 2d.")] = "1h",
    tenant: Annotated[str | None, typer.Option(help="The tenant it acts in.", callback=bounds.said)] = None,
    groups: bounds.Groups = None,
    trust: Annotated[int, typer.Option(min=0, max=100, help="How far the subject is trusted.")] = 0,
    audience: bounds.Audience = None,
    resources: bounds.Resources = None,
    constraints: bounds.Constraints = None,
    calls: bounds.Calls = None,
    cost_micros: bounds.Cost = None,
    running: bounds.Running = None,
    depth: Annotated[int | None, typer.Option(min=0, max=8, help="How often it may be passed on.")] = None,
    session: bounds.Session = None,
    proof: bounds.Proof = None,
    raw: bounds.Raw = False,
    state: options.State = None,
    as_json: options.Json = False,
) -> None:
    """Mint a token with the operator's certificate of the local mesh."""
    token = _mint(
        Place(state=state).running(),
        sub=sub,
        tools=listed(tools),
        scopes=listed(scopes),
        ttl_seconds=seconds_of(ttl, "--ttl"),
        tenant=tenant or "",
        groups=listed(groups),
        trust=trust,
        audience=listed(audience),
        depth=depth,
        bounds=bounds.bounds_of(
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
@reported
def delegate(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Who will act for you, a DID.")],
    tools: bounds.Part = None,
    scopes: Annotated[
        str,
        typer.Option(
            help="What else it may do, such as tools:call, without which it calls nothing. None is passed on unless named."
        ),
    ] = "",
    ttl: bounds.Lifetime = None,
    groups: bounds.Groups = None,
    trust: Annotated[int | None, typer.Option(min=0, max=100, help="How far it is trusted.")] = None,
    audience: bounds.Audience = None,
    resources: bounds.Resources = None,
    constraints: bounds.Constraints = None,
    calls: bounds.Calls = None,
    cost_micros: bounds.Cost = None,
    running: bounds.Running = None,
    depth: Annotated[int | None, typer.Option(min=0, max=8, help="How often it may be passed on again.")] = None,
    session: bounds.Session = None,
    proof: bounds.Proof = None,
    bind_agent_key: Annotated[bool, typer.Option("--bind-agent-key", help="Bind it to the key of the DID.")] = False,
    raw: bounds.Raw = False,
    url: options.Url = "",
    token: options.Token = None,
    ca: options.Ca = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> None:
    """Pass a part of your own token on to an agent."""
    asked = bounds.bounds_of(
        resources=resources,
        constraints=constraints,
        calls=calls,
        cost_micros=cost_micros,
        running=running,
        session=session,
        proof=proof,
    )
    _add_part(asked, tools=tools, scopes=scopes, ttl=ttl, groups=groups, trust=trust, audience=audience)
    with open_client(Place(url=url, token=token, ca=ca, state=state), TIMEOUT) as client:
        made = client.delegate(agent, depth=depth, bind_to_agent_key=bind_agent_key, **asked).token
    _print_token(made, raw=raw, as_json=as_json)


@app.command()
@reported
def narrow(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The one tool that it may call, such as echo@^1.")],
    scopes: Annotated[
        str,
        typer.Option(
            help="What else it may do, such as tools:call, without which it calls nothing. None is passed on unless named."
        ),
    ] = "",
    ttl: bounds.Lifetime = None,
    resources: bounds.Resources = None,
    constraints: bounds.Constraints = None,
    calls: bounds.Calls = None,
    session: bounds.Session = None,
    proof: bounds.Proof = None,
    raw: bounds.Raw = False,
    url: options.Url = "",
    token: options.Token = None,
    ca: options.Ca = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> None:
    """Cut your own token down to one tool; nothing can be derived from what you get."""
    asked = bounds.bounds_of(resources=resources, constraints=constraints, calls=calls, session=session, proof=proof)
    _add_part(asked, scopes=scopes, ttl=ttl)
    with open_client(Place(url=url, token=token, ca=ca, state=state), TIMEOUT) as client:
        made = client.narrow(tool, **asked).token
    _print_token(made, raw=raw, as_json=as_json)


@app.command()
@reported
def inspect(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The token, or - to read it from stdin.")],
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the local mesh about it.")] = False,
    state: options.State = None,
    as_json: options.Json = False,
) -> None:
    """Show what a token says: its tier, its chain, what it may do, and how much time is left.

    Nothing is verified here; a running local mesh is asked whether it accepts the token.
    """
    text = _token_text(token)
    claims = claims_of(text)
    runtime = None if offline else Place(state=state).runtime()
    answer = _introspect(runtime, text) if runtime is not None else None
    if as_json:
        output.print_json({"verified": False, "claims": claims, "introspection": answer})
        return
    _print_rows(claims)
    console = output.err()
    console.print("Decoded, not verified: anyone can write these words.", style="yellow")
    if answer is not None:
        console.print(f"The local mesh says: {_verdict(answer)}", markup=False)


@app.command()
@reported
def revoke(
    what: Annotated[str, typer.Argument(metavar="[TOKEN|ID]", help="A token, - for stdin, or the id of one.")] = "",
    subject: Annotated[str, typer.Option(help="Every token of this subject or agent until now, a DID.")] = "",
    key: Annotated[str, typer.Option(help="Every token that this key signed.")] = "",
    reason: Annotated[str, typer.Option(help="Why, in words that others will read.")] = "",
    url: options.Url = "",
    token: options.Token = None,
    ca: options.Ca = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> None:
    """Take back a token with everything derived from it, all tokens of somebody, or all that a key signed.

    With --token it is done on that token's authority, else with the operator's certificate of the local mesh.
    """
    from toolmesh.authz.v1 import token_service_pb2 as pb
    from toolmesh.authz.v1.token_service_pb2_grpc import TokenServiceStub

    if sum(map(bool, (what, subject, key))) != 1:
        raise typer.BadParameter("name one: a token or its id, --subject, or --key", param_hint="TOKEN")
    target = {"subject": subject} if subject else {"key_id": key} if key else {"token_id": _token_id(what)}
    request = pb.RevokeTokenRequest(reason=reason, **target)
    with _authority(Place(url=url, token=token, ca=ca, state=state)) as transport:
        stub = TokenServiceStub(transport.channel)
        revocation = transport.unary(stub.RevokeToken, request, TIMEOUT, repeatable=True).revocation
    if as_json:
        output.print_json({"revocation": revocation.name, "reason": revocation.reason, "by": revocation.revoked_by})
        return
    output.err().print(output.text(("Revoked", "bold"), f" by {revocation.revoked_by} as {revocation.name}."))


@contextmanager
def _authority(place: Place) -> Iterator[Transport]:
    """Connect as the holder of a token that was given, else as the operator of the local mesh."""
    from toolmesh_sdk.admin import operator

    if place.url or place.token is not None:
        with open_client(place, TIMEOUT) as client:
            yield client.transport
        return
    runtime = place.running()
    try:
        with operator(runtime) as transport:
            yield transport
    except (OSError, KeyError) as error:
        raise typer.BadParameter(f"the operator's certificate cannot be used: {error}", param_hint="--state") from None


def _add_part(
    asked: Bounds,
    *,
    tools: str | None = None,
    scopes: str = "",
    ttl: str | None = None,
    groups: str | None = None,
    trust: int | None = None,
    audience: str | None = None,
) -> None:
    said: dict[str, Any] = {
        "tools": listed(tools),
        "scopes": listed(scopes),
        "ttl_seconds": None if ttl is None else seconds_of(ttl, "--ttl"),
        "groups": listed(groups),
        "trust": trust,
        "audience": listed(audience),
    }
    asked.update({name: value for name, value in said.items() if value not in (None, [])})  # type: ignore[typeddict-item]


def _token_text(token: str) -> str:
    return (stdin_text("TOKEN") if token == options.STDIN else token).strip()


def _token_id(what: str) -> str:
    text = _token_text(what)
    # An id has no dots; a token has two.
    return str(claims_of(text).get("jti", "")) if text.count(".") == 2 else text


def _mint(runtime: dict[str, Any], **wishes: Any) -> str:
    from toolmesh_sdk.admin import mint_token

    try:
        return mint_token(runtime, **wishes)
    except (OSError, KeyError) as error:
        raise typer.BadParameter(f"the operator's certificate cannot be used: {error}", param_hint="--state") from None


def _introspect(runtime: dict[str, Any], token: str) -> dict[str, Any]:
    from toolmesh_sdk.admin import introspect_token

    try:
        response = introspect_token(runtime, token)
    except ToolmeshError as error:
        return {"active": None, "error_code": error.code}
    except (OSError, KeyError):
        return {"active": None, "error_code": ""}
    return {"active": response.active, "error_code": response.error_code}


def _verdict(answer: dict[str, Any]) -> str:
    if answer["active"] is None:
        return "nothing; it could not be asked"
    return "accepted" if answer["active"] else f"not accepted ({answer['error_code']})"


def _print_token(token: str, *, raw: bool, as_json: bool) -> None:
    if as_json:
        output.print_json({"token": token, "claims": claims_of(token)})
        return
    sys.stdout.write(token + "\n")
    if not raw:
        _print_rows(claims_of(token))


def _print_rows(claims: dict[str, Any]) -> None:
    # The claims are a remark: whoever pipes the token onward gets the token alone.
    console = output.err()
    for name, value in token_rows(claims, datetime.now(UTC)):
        console.print(output.text((f"  {name:<10}", "dim"), value))
