"""The options that commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

STDIN = "-"
TOKEN_VARIABLE = "TOOLMESH_TOKEN"  # noqa: S105  (the name of one, not one)
KEY_VARIABLE = "TOOLMESH_AUDIT_KEY"
# The largest whole number of the contract.
MOST = 2**63 - 1
_LONGEST_SECONDS = 366 * 86_400
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


def token_given(value: str | None) -> str | None:
    """Refuse a token that is empty: whoever meant to hand one over must not act with the local mesh's own authority instead."""
    if value is None and os.environ.get(TOKEN_VARIABLE) is None:
        return None
    if not (value or "").strip():
        raise typer.BadParameter(f"the token is empty; leave --token out and {TOKEN_VARIABLE} unset to use your own")
    return value


def key_given(value: str | None) -> str | None:
    """Refuse a log's key that is empty: whoever meant to demand one must not have the log believed about its own key instead."""
    if value is None:
        value = os.environ.get(KEY_VARIABLE)
    if value is not None and not value.strip():
        raise typer.BadParameter(f"the key is empty; leave --key out and {KEY_VARIABLE} unset to demand none")
    return value


LogKey = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar=KEY_VARIABLE,
        callback=key_given,
        help="The log's verifier key, or a file that holds it; without it, a running log is believed about its own.",
        show_default=False,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar=TOKEN_VARIABLE,
        callback=token_given,
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
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.001,
        max=_LONGEST_SECONDS,
        help="Seconds for the whole call, retries included; a year at most.",
    ),
]
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
