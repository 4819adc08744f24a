"""Types of the command-line options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from toolmesh_sdk.cli.inputs.contexts import complete_context

STDIN = "-"
TOKEN_VARIABLE = "TOOLMESH_TOKEN"  # noqa: S105  (the name of a variable, not a secret)
KEY_VARIABLE = "TOOLMESH_AUDIT_KEY"
MAX_INT64 = 2**63 - 1
_MAX_TIMEOUT_SECONDS = 366 * 86_400
# StoredResult results up to the first limit are printed by default; up to the second they are fetched on request.
SHOWN_BYTES, FETCHED_BYTES = 8 * 1024 * 1024, 64 * 1024 * 1024


def split_list(text: str | None) -> list[str]:
    """Split a list that is separated by commas; None is an empty list."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def refuse_blank(text: str | None) -> str | None:
    """Refuse an option that is set to nothing, such as `--resources "$UNSET"`; None means that it is not set.

    Otherwise a token would not be bound, or a call not pinned, although the user asked for it.
    """
    if text is not None and not split_list(text):
        raise typer.BadParameter("the value is empty; omit the option to leave it unset")
    return text


def check_token(value: str | None) -> str | None:
    """Refuse an empty token, so that a command never falls back to the local mesh's own authority by accident."""
    if value is None and os.environ.get(TOKEN_VARIABLE) is None:
        return None
    if not (value or "").strip():
        raise typer.BadParameter(f"the token is empty; omit --token and unset {TOKEN_VARIABLE} to use your own")
    return value


def check_log_key(value: str | None) -> str | None:
    """Refuse an empty log key, so that a log is never trusted about its own key by accident."""
    if value is None:
        value = os.environ.get(KEY_VARIABLE)
    if value is not None and not value.strip():
        raise typer.BadParameter(f"the key is empty; omit --key and unset {KEY_VARIABLE} to require none")
    return value


Url = Annotated[
    str,
    typer.Option(
        "--url",
        "--target",
        envvar="TOOLMESH_URL",
        help="The mesh: a URL or host:port.",
        show_default=False,
    ),
]
LogKey = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar=KEY_VARIABLE,
        callback=check_log_key,
        help="The log's verifier key, or a file that holds it. Without it, a running log's own key is trusted.",
        show_default=False,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar=TOKEN_VARIABLE,
        callback=check_token,
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
        help="The CA certificate of the mesh, a PEM file; for https.",
        show_default=False,
    ),
]
Cert = Annotated[
    Path | None,
    typer.Option(
        "--cert",
        envvar="TOOLMESH_CERT",
        help="Your certificate, a PEM file: --url is then a service.",
        show_default=False,
    ),
]
CertKey = Annotated[
    Path | None,
    typer.Option(
        "--key",
        "--cert-key",
        envvar="TOOLMESH_CERT_KEY",
        help="The private key of --cert, unless that file holds it.",
        show_default=False,
    ),
]
# For commands that have a --key of their own.
OnlyCertKey = Annotated[
    Path | None,
    typer.Option(
        "--cert-key",
        envvar="TOOLMESH_CERT_KEY",
        help="The private key of --cert, unless that file holds it.",
        show_default=False,
    ),
]
Context = Annotated[
    str,
    typer.Option(
        "--context",
        envvar="TOOLMESH_CONTEXT",
        help="A mesh of `toolmesh context list`.",
        autocompletion=complete_context,
        show_default=False,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.001,
        max=_MAX_TIMEOUT_SECONDS,
        help="Seconds for the whole call, including retries.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
MaxBytes = Annotated[int, typer.Option("--max-bytes", min=0, help="The largest stored result to fetch.")]
KeySecret = Annotated[
    str,
    typer.Option(
        "--key-secret",
        envvar="TOOLMESH_KEY_SECRET",
        help="The secret from which the keys of steps are derived.",
        show_default=False,
    ),
]
