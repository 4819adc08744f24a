"""The options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

STDIN = "-"

Url = Annotated[
    str,
    typer.Option(
        "--url",
        "--target",
        envvar="TOOLMESH_URL",
        help="Where the mesh is: a URL or host:port.",
        show_default=False,
    ),
]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        envvar="TOOLMESH_TOKEN",
        help="The capability token to call with.",
        show_default=False,
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        envvar="TOOLMESH_STATE",
        help="The state folder of a local mesh.",
        show_default="~/.local/state/toolmesh",
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        envvar="TOOLMESH_CA",
        help="Who issues the mesh's certificate, a PEM file; for https.",
        show_default=False,
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds for the whole call, retries included.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
