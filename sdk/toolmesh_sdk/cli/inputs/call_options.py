"""Types of the options of a call: its tool, its arguments, and how it is identified and approved."""

from __future__ import annotations

from typing import Annotated

import typer

from toolmesh_sdk.cli.inputs.options import refuse_blank
from toolmesh_sdk.cli.inputs.tool_completion import complete_tool

Tool = Annotated[
    str, typer.Argument(metavar="TOOL", help="The tool, such as echo or acme.send_email.", autocompletion=complete_tool)
]
ArgumentsJson = Annotated[
    str, typer.Argument(metavar="ARGUMENTS_JSON", help="A JSON object, or - to read one from stdin.")
]
Argument = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="KEY=VALUE",
        help="One argument; repeatable. A value that parses as JSON is JSON (n=3, 'id=\"3\"'), any other is text.",
    ),
]
Version = Annotated[
    str | None, typer.Option(callback=refuse_blank, help="The version: 1.2.3, latest, ^1.2, ~1.2, 1.x.")
]
Digest = Annotated[
    str | None, typer.Option(callback=refuse_blank, help="The expected digest of the version; see `tools schema`.")
]
Preview = Annotated[bool, typer.Option("--preview", help="Show what the call would do, without doing it.")]
PreviewToken = Annotated[str, typer.Option(help="The token that --preview printed for this call.", show_default=False)]
Ticket = Annotated[str, typer.Option(help="The approved ticket of this call: tickets/...", show_default=False)]
Key = Annotated[
    str | None,
    typer.Option(
        callback=refuse_blank,
        help="The idempotency key: a retry with the same key in the same --session has no second effect.",
    ),
]
Step = Annotated[
    str | None,
    typer.Option(callback=refuse_blank, help="Instead of --key: the step of --session; the key is derived from both."),
]
Session = Annotated[str | None, typer.Option(callback=refuse_blank, help="The session of the call.")]
Task = Annotated[
    str | None, typer.Option(callback=refuse_blank, help="The task of the call, which its cost is counted to.")
]
Priority = Annotated[
    int, typer.Option(min=0, max=10, help="The priority in the queue, 1 to 10; 0 uses the tool's own.")
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Start the call and print its name; `toolmesh jobs` follows it.")
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show what the tool printed, and its traceback; needs the scope tools:logs.")
]
Follow = Annotated[
    bool, typer.Option("--follow", help="Show progress until the end; Ctrl-C leaves the call or cancels it.")
]


def check_step(step: str | None, *, key: str | None, session: str | None, key_secret: str) -> None:
    """Refuse a step from which no reproducible key can be derived."""
    if not step:
        return
    if key:
        raise typer.BadParameter("use --step or --key, not both", param_hint="--step")
    if not session:
        raise typer.BadParameter("a step needs a session; add --session", param_hint="--step")
    if not key_secret:
        raise typer.BadParameter("a step's key needs a secret; set TOOLMESH_KEY_SECRET", param_hint="--step")
