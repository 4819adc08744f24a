"""The options by which a person says what a token may do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.claims import listed, seconds_of
from toolmesh_sdk.cli.inputs.json_input import json_file, json_from

if TYPE_CHECKING:
    from toolmesh_sdk.token_request import Bounds

_ARGUMENTS = "--arguments"


def said(text: str | None) -> str | None:
    """Refuse an option that was given and says nothing, as a variable of the shell does that was never set: a token that was meant to be
    bound, or a call that was meant to be pinned, would not be. What was not given is None."""
    if text is not None and not listed(text):
        raise typer.BadParameter("it is given and says nothing; leave it out where nothing is to be said")
    return text


Resources = Annotated[
    str | None, typer.Option(help="Resources it is confined to: patterns, separated by commas.", callback=said)
]
Constraints = Annotated[
    list[str] | None,
    typer.Option(
        _ARGUMENTS,
        help="What arguments must satisfy: TOOL=JSON-SCHEMA, or TOOL=@file. Repeatable; all that are said of a tool hold.",
    ),
]
Calls = Annotated[int | None, typer.Option(min=0, max=options.MOST, help="How many calls it may make in all.")]
Cost = Annotated[
    int | None, typer.Option("--cost-micros", min=0, max=options.MOST, help="What its calls may cost in all.")
]
Running = Annotated[str | None, typer.Option(help="How long its calls may run in all: 90s, 15m, 1h.", callback=said)]
Session = Annotated[str | None, typer.Option(help="The session it is bound to.", callback=said)]
Proof = Annotated[
    str | None, typer.Option(help="What its holder must prove: jkt:THUMBPRINT or x5t#S256:THUMBPRINT.", callback=said)
]
Audience = Annotated[str | None, typer.Option(help="Where it may be used, separated by commas.", callback=said)]
Groups = Annotated[str | None, typer.Option(help="Groups of the subject, separated by commas.", callback=said)]
Part = Annotated[str | None, typer.Option("--tools", help="What it may call; left out, what you may.", callback=said)]
Lifetime = Annotated[
    str | None, typer.Option("--ttl", help="How long it holds; left out, as long as yours.", callback=said)
]
Raw = Annotated[bool, typer.Option("--raw", help="Print just the token.")]


def bounds_of(
    *,
    resources: str | None = None,
    constraints: list[str] | None = None,
    calls: int | None = None,
    cost_micros: int | None = None,
    running: str | None = None,
    session: str | None = None,
    proof: str | None = None,
) -> Bounds:
    """Return what was said, without what was not."""
    asked: dict[str, Any] = {
        "resources": listed(resources),
        "arguments": _constraints(constraints or ()),
        "calls": calls,
        "cost_micros": cost_micros,
        "running_seconds": None if running is None else seconds_of(running, "--running", least=0),
        "session": session,
        "proof": None if proof is None else _proof(proof),
    }
    bounds: Bounds = {name: value for name, value in asked.items() if value not in (None, [], {})}  # type: ignore[assignment]
    return bounds


def _constraints(texts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What is said of each tool, as one schema: where more than one is said of a tool, all must hold."""
    found: dict[str, list[dict[str, Any]]] = {}
    for tool, schema in map(_constraint, texts):
        found.setdefault(tool, []).append(schema)
    return {tool: schemas[0] if len(schemas) == 1 else {"allOf": schemas} for tool, schemas in found.items()}


def _constraint(text: str) -> tuple[str, dict[str, Any]]:
    tool, _, schema = text.partition("=")
    if not tool.strip() or not schema.strip():
        raise typer.BadParameter("write TOOL=JSON-SCHEMA or TOOL=@file", param_hint=_ARGUMENTS)
    document = json_file(Path(schema[1:]), _ARGUMENTS) if schema.startswith("@") else json_from(schema, _ARGUMENTS)
    if not isinstance(document, dict):
        raise typer.BadParameter(f"{tool}: a JSON Schema is an object", param_hint=_ARGUMENTS)
    return tool, document


def _proof(text: str) -> str:
    if text.partition(":")[0] not in ("jkt", "x5t#S256"):
        raise typer.BadParameter("write jkt:THUMBPRINT or x5t#S256:THUMBPRINT", param_hint="--proof")
    return text
