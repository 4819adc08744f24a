"""The options by which a person says what a token may do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.claims import listed, seconds_of

if TYPE_CHECKING:
    from toolmesh_sdk.parts import Bounds

Resources = Annotated[str, typer.Option(help="Resources it is confined to: patterns, separated by commas.")]
Constraints = Annotated[
    list[str] | None,
    typer.Option("--arguments", help="What arguments must satisfy: TOOL=JSON-SCHEMA, or TOOL=@file. Repeatable."),
]
Calls = Annotated[int | None, typer.Option(min=0, help="How many calls it may make in all.")]
Cost = Annotated[int | None, typer.Option("--cost-micros", min=0, help="What its calls may cost in all.")]
Running = Annotated[str, typer.Option(help="How long its calls may run in all: 90s, 15m, 1h.")]
Session = Annotated[str, typer.Option(help="The session it is bound to.")]
Proof = Annotated[str, typer.Option(help="What its holder must prove: jkt:THUMBPRINT or x5t#S256:THUMBPRINT.")]
Audience = Annotated[str, typer.Option(help="Where it may be used, separated by commas.")]
Groups = Annotated[str, typer.Option(help="Groups of the subject, separated by commas.")]
Raw = Annotated[bool, typer.Option("--raw", help="Print just the token.")]


def bounds_of(
    *,
    resources: str = "",
    constraints: list[str] | None = None,
    calls: int | None = None,
    cost_micros: int | None = None,
    running: str = "",
    session: str = "",
    proof: str = "",
) -> Bounds:
    """Return what was said, without what was not."""
    said: dict[str, Any] = {
        "resources": listed(resources),
        "arguments": dict(_constraint(text) for text in constraints or ()),
        "calls": calls,
        "cost_micros": cost_micros,
        "running_seconds": seconds_of(running) if running else None,
        "session": session,
        "proof": _proof(proof),
    }
    bounds: Bounds = {name: value for name, value in said.items() if value not in (None, "", [], {})}  # type: ignore[assignment]
    return bounds


def _constraint(text: str) -> tuple[str, dict[str, Any]]:
    tool, found, schema = text.partition("=")
    try:
        document = json.loads(Path(schema[1:]).read_bytes() if schema.startswith("@") else schema)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{tool}: no JSON Schema: {error}", param_hint="--arguments") from None
    if not found or not isinstance(document, dict):
        raise typer.BadParameter("write TOOL=JSON-SCHEMA or TOOL=@file", param_hint="--arguments")
    return tool, document


def _proof(text: str) -> str:
    if text and text.partition(":")[0] not in ("jkt", "x5t#S256"):
        raise typer.BadParameter("write jkt:THUMBPRINT or x5t#S256:THUMBPRINT", param_hint="--proof")
    return text
