"""`toolmesh result`: read a result that was stored because it is large."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.target import Place, open_client
from toolmesh_sdk.cli.views import output


@reported
def result(
    ref: Annotated[str, typer.Argument(metavar="REF", help="The name of the stored result, results/...")],
    access_token: Annotated[
        str,
        typer.Option(
            envvar="TOOLMESH_ACCESS_TOKEN",
            help="The access token that came with the name, or - to read it from stdin.",
            show_default=False,
        ),
    ],
    to: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it to this file, byte for byte, instead of stdout.")
    ] = None,
    max_bytes: options.MaxBytes = options.FETCHED_BYTES,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Print a stored result, or write it to a file.

    `toolmesh call` says its name and access token. It is read whole and checked against its digest before anything is printed or
    written. Who reads it must belong to the caller's tenant, and it is there until it expires.
    """
    from toolmesh_sdk._wire.payload import parse

    secret = sys.stdin.readline().strip() if access_token == options.STDIN else access_token
    with open_client(Place(url=url, token=token, state=state, ca=ca), timeout) as client:
        content = client.fetch_result(ref, secret, max_bytes=max_bytes)
    if to is not None:
        _write(to, content)
        said = {"ref": ref, "size_bytes": len(content), "output": str(to)}
        if as_json:
            output.print_json(said)
        else:
            output.err().print(output.text(f"{len(content)} bytes written to {to}"))
    elif as_json:
        output.print_json({"ref": ref, "size_bytes": len(content), "content": parse(content)})
    else:
        output.print_content(parse(content))


def _write(to: Path, content: bytes) -> None:
    try:
        to.write_bytes(content)
    except OSError as error:
        raise typer.BadParameter(f"{to} cannot be written: {error.strerror}", param_hint="--output") from None
