"""`toolmesh token`: make tokens on a local mesh, and read them."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from toolmesh_sdk.cli import options, output
from toolmesh_sdk.cli.claims import claim_rows, claims_of, listed, seconds_of
from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.place import LOCAL_SCOPES, LOCAL_USER, Place
from toolmesh_sdk.errors import ToolmeshError

app = typer.Typer(help="Make and read capability tokens.", no_args_is_help=True)


@app.command()
@reported
def mint(
    sub: Annotated[str, typer.Option(help="Whose authority it is, a DID.")] = LOCAL_USER,
    tools: Annotated[str, typer.Option(help="What it may call: patterns, separated by commas.")] = "*",
    scopes: Annotated[str, typer.Option(help="What else it may do, separated by commas.")] = ",".join(LOCAL_SCOPES),
    ttl: Annotated[str, typer.Option(help="How long it holds: 90s, 15m, 1h, 2d.")] = "1h",
    tenant: Annotated[str, typer.Option(help="The tenant it acts in.")] = "",
    groups: Annotated[str, typer.Option(help="Groups of the subject, separated by commas.")] = "",
    trust: Annotated[int, typer.Option(min=0, max=100, help="How far the subject is trusted.")] = 0,
    audience: Annotated[str, typer.Option(help="Where it may be used, separated by commas.")] = "",
    raw: Annotated[bool, typer.Option("--raw", help="Print just the token.")] = False,
    state: options.State = None,
    as_json: options.Json = False,
) -> None:
    """Mint a token with the operator's certificate of the local mesh."""
    token = _mint(
        Place(state=state).running(),
        sub=sub,
        tools=listed(tools),
        scopes=listed(scopes),
        ttl_seconds=seconds_of(ttl),
        tenant=tenant,
        groups=listed(groups),
        trust=trust,
        audience=listed(audience),
    )
    if as_json:
        output.print_json({"token": token, "claims": claims_of(token)})
        return
    sys.stdout.write(token + "\n")
    if not raw:
        _print_claims(claims_of(token))


@app.command()
@reported
def show(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The token, or - to read it from stdin.")],
    state: options.State = None,
    as_json: options.Json = False,
) -> None:
    """Show what a token claims.

    Nothing is verified here; a running local mesh is asked whether it accepts the token.
    """
    text = (sys.stdin.read() if token == options.STDIN else token).strip()
    claims = claims_of(text)
    runtime = Place(state=state).runtime()
    answer = _introspect(runtime, text) if runtime is not None else None
    if as_json:
        output.print_json({"verified": False, "claims": claims, "introspection": answer})
        return
    _print_claims(claims)
    console = output.err()
    console.print("Decoded, not verified: anyone can write these words.", style="yellow")
    if answer is not None:
        console.print(f"The local mesh says: {_verdict(answer)}", markup=False)


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


def _print_claims(claims: dict[str, Any]) -> None:
    # The claims are a remark: whoever pipes the token onward gets the token alone.
    console = output.err()
    for name, value in claim_rows(claims, datetime.now(UTC)):
        console.print(output.text((f"  {name:<8}", "dim"), value))
