"""`toolmesh result`: reads a large result from the result store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.target import Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.views import output


@report_errors
@add_target_options()
def result(
    ref: Annotated[str, typer.Argument(metavar="REF", help="The name of the stored result: results/...")],
    access_token: Annotated[
        str,
        typer.Option(
            envvar="TOOLMESH_ACCESS_TOKEN",
            help="The access token of the result, or - for stdin.",
            show_default=False,
        ),
    ],
    to: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the exact bytes to this file instead of stdout.")
    ] = None,
    max_bytes: options.MaxBytes = options.FETCHED_BYTES,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Print a stored result, or write it to a file.

    `toolmesh call` prints its name and access token. The result is checked against its digest before it is printed or
    written. It can be read by the tenant of the original caller until it expires.

    \b
    Example:
      toolmesh result results/0198c --access-token "$ACCESS" --output report.json
    """
    from toolmesh_sdk._wire.payload import parse

    secret = sys.stdin.readline().strip() if access_token == options.STDIN else access_token
    with open_client(target) as client:
        content = client.fetch_result(ref, secret, max_bytes=max_bytes)
    if to is not None:
        _write(to, content)
        if as_json:
            output.print_json({"ref": ref, "size_bytes": len(content), "output": str(to)})
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
