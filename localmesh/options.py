"""Options and output that the commands of the local mesh share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

StateOption = Annotated[Path | None, typer.Option("--state", help="The state folder.", show_default="TOOLMESH_STATE")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_outcome(document: dict[str, Any], message: str | None, *, as_json: bool) -> None:
    """Prints the document as JSON, or the message for a person."""
    if as_json:
        typer.echo(json.dumps(document))
    elif message is not None:
        typer.echo(message)
