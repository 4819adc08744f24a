"""`toolmesh doctor`: checks whether this machine can run a mesh and reach one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

import typer

from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.plugins import Plugin
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh_sdk.cli.views.doctor_checks import Check

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor_for(plugins: list[Plugin]) -> Callable[..., None]:
    """Return the command, which also reports the given plugins."""

    def doctor(url: options.Url = "", state: options.State = None, as_json: options.Json = False) -> None:
        """Check this machine and the mesh.

        Prints advice for every problem; exits with 1 if a check fails.

        \b
        Examples:
          toolmesh doctor
          toolmesh doctor --url https://mesh.example
        """
        from toolmesh_sdk.cli.views.doctor_checks import all_checks

        report(list(all_checks(Target(url=url, state=state), plugins)), as_json=as_json)

    return doctor


def report(checks: list[Check], *, as_json: bool) -> NoReturn:
    """Print the results and end the command, with 1 if a check failed."""
    failed = any(check.status == "fail" for check in checks)
    if as_json:
        output.print_json({"ok": not failed, "checks": [asdict(check) for check in checks]})
    else:
        _print(checks)
    raise typer.Exit(FAILED if failed else 0)


def _print(checks: list[Check]) -> None:
    console = output.out()
    width = max(len(check.name) for check in checks)
    for check in checks:
        status = (f"{check.status:<4}", _STYLES[check.status])
        console.print(output.text(status, f"  {check.name:<{width}}  {check.detail}"))
        if check.advice:
            console.print(output.text((f"      {'':<{width}}  {check.advice}", "dim")))
    counts = Counter(check.status for check in checks)
    console.print(", ".join(f"{counts[status]} {status}" for status in _STYLES if counts[status]))
