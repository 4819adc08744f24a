"""Options that bound a token: tools, resources, arguments, budget, session and proof of possession."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.json_input import parse_json, read_json_file
from toolmesh_sdk.cli.inputs.login_key import read_or_create_login_key
from toolmesh_sdk.cli.inputs.options import refuse_blank, split_list
from toolmesh_sdk.cli.inputs.timestamps import parse_seconds

if TYPE_CHECKING:
    from toolmesh_sdk.token_request import Bounds

_ARGUMENTS = "--arguments"

Resources = Annotated[
    str | None, typer.Option(help="The allowed resources: patterns, separated by commas.", callback=refuse_blank)
]
Constraints = Annotated[
    list[str] | None,
    typer.Option(
        _ARGUMENTS,
        help="A JSON Schema for arguments: TOOL=JSON-SCHEMA or TOOL=@file. Repeatable; all schemas of a tool apply.",
    ),
]
Calls = Annotated[int | None, typer.Option(min=0, max=options.MAX_INT64, help="The total number of calls.")]
Cost = Annotated[
    int | None,
    typer.Option("--cost-micros", min=0, max=options.MAX_INT64, help="The total cost of its calls, in micros."),
]
Running = Annotated[
    str | None, typer.Option(help="The total running time of its calls: 90s, 15m, 1h.", callback=refuse_blank)
]
Session = Annotated[str | None, typer.Option(help="The session that the token is bound to.", callback=refuse_blank)]
Proof = Annotated[
    str | None,
    typer.Option(help="The key to prove possession of: jkt:THUMBPRINT or x5t#S256:THUMBPRINT.", callback=refuse_blank),
]
Dpop = Annotated[
    bool, typer.Option("--dpop", help="Bind the token to your login key; the command line proves it with every call.")
]
Audience = Annotated[
    str | None, typer.Option(help="The audiences of the token, separated by commas.", callback=refuse_blank)
]
Groups = Annotated[
    str | None, typer.Option(help="The groups of the subject, separated by commas.", callback=refuse_blank)
]
Tools = Annotated[
    str | None,
    typer.Option(
        "--tools", help="Tool patterns, separated by commas; default: those of your token.", callback=refuse_blank
    ),
]
Scopes = Annotated[
    str,
    typer.Option(
        help="Scopes, separated by commas. None is inherited; without tools:call the token calls nothing.",
    ),
]
Lifetime = Annotated[
    str | None,
    typer.Option("--ttl", help="The lifetime: 90s, 15m, 1h, 2d; default: that of your token.", callback=refuse_blank),
]
Raw = Annotated[bool, typer.Option("--raw", help="Print only the token.")]


def build_bounds(
    *,
    resources: str | None = None,
    constraints: list[str] | None = None,
    calls: int | None = None,
    cost_micros: int | None = None,
    running: str | None = None,
    session: str | None = None,
    proof: str | None = None,
) -> Bounds:
    """Return the bounds that are set; unset ones are left out."""
    values: dict[str, Any] = {
        "resources": split_list(resources),
        "arguments": _parse_constraints(constraints or ()),
        "calls": calls,
        "cost_micros": cost_micros,
        "running_seconds": None if running is None else parse_seconds(running, "--running", least=0),
        "session": session,
        "proof": None if proof is None else _check_proof(proof),
    }
    bounds: Bounds = {name: value for name, value in values.items() if value not in (None, [], {})}  # type: ignore[assignment]
    return bounds


def _parse_constraints(texts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return one schema for each tool; several schemas of a tool are combined with allOf."""
    by_tool: dict[str, list[dict[str, Any]]] = {}
    for tool, schema in map(_parse_constraint, texts):
        by_tool.setdefault(tool, []).append(schema)
    return {tool: schemas[0] if len(schemas) == 1 else {"allOf": schemas} for tool, schemas in by_tool.items()}


def _parse_constraint(text: str) -> tuple[str, dict[str, Any]]:
    tool, _, schema = text.partition("=")
    if not tool.strip() or not schema.strip():
        raise typer.BadParameter("write TOOL=JSON-SCHEMA or TOOL=@file", param_hint=_ARGUMENTS)
    document = (
        read_json_file(Path(schema[1:]), _ARGUMENTS) if schema.startswith("@") else parse_json(schema, _ARGUMENTS)
    )
    if not isinstance(document, dict):
        raise typer.BadParameter(f"{tool}: a JSON Schema is an object", param_hint=_ARGUMENTS)
    return tool, document


def bound_proof(proof: str | None, *, dpop: bool) -> str | None:
    """Return the key that a token is bound to: that of --proof, or with --dpop the login key."""
    if not dpop:
        return None if proof is None else _check_proof(proof)
    if proof is not None:
        raise typer.BadParameter("use --dpop or --proof, not both", param_hint="--dpop")
    return f"jkt:{read_or_create_login_key().thumbprint}"


def _check_proof(text: str) -> str:
    if text.partition(":")[0] not in ("jkt", "x5t#S256"):
        raise typer.BadParameter("write jkt:THUMBPRINT or x5t#S256:THUMBPRINT", param_hint="--proof")
    return text
