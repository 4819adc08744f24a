"""Shows what the tool of one call printed and how it failed, to readers who may see its log: authors of the tool."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolmesh_sdk.cli.views import output
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh_sdk.client import Client

# Lines are stored about a second after a call, later under load.
_WAIT_SECONDS, _PAUSE_SECONDS = 5.0, 0.25


@contextmanager
def debug_failure(client: Client) -> Iterator[None]:
    """Print the log of a call that fails, before its error."""
    try:
        yield
    except ToolmeshError as error:
        if error.invocation_id:
            print_debug(client, error.invocation_id)
        raise


def print_debug(client: Client, invocation_id: str) -> None:
    """Print the log of an invocation to stderr, once it is stored; say so if there is none or none may be seen."""
    from toolmesh_sdk.cli.commands.tools.logs import print_log
    from toolmesh_sdk.tool_logs import ToolLogReader

    reader, until = ToolLogReader(client), time.monotonic() + _WAIT_SECONDS
    try:
        while not (found := list(reader.list(invocation_id=invocation_id, number=1))) and time.monotonic() < until:
            time.sleep(_PAUSE_SECONDS)
    except ToolmeshError as error:
        message = (
            f"The log is not shown: {error.message}. It needs a token with the scope tools:logs that names the tool."
        )
        output.err().print(output.text((message, "yellow")))
        return
    for log in found:
        print_log(output.err(), log)
    if not found:
        output.err().print(output.text(("The call printed nothing.", "dim")))
