"""The options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

STDIN = "-"
# What a terminal or a pipe is given without being asked, and what one fetches at most on purpose.
SHOWN_BYTES, FETCHED_BYTES = 8 * 1024 * 1024, 64 * 1024 * 1024

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
MaxBytes = Annotated[int, typer.Option("--max-bytes", min=0, help="The largest stored result that is fetched.")]
KeySecret = Annotated[
    str,
    typer.Option(
        "--key-secret",
        envvar="TOOLMESH_KEY_SECRET",
        help="The secret that the keys of steps are derived with.",
        show_default=False,
    ),
]
