"""`toolmesh version`: prints the installed version."""

from __future__ import annotations

import platform
from importlib import metadata

from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.views import output


def version(as_json: options.Json = False) -> None:
    """Show the version.

    \b
    Example:
      toolmesh version --json
    """
    facts = {
        "toolmesh": installed_version(),
        "python": platform.python_version(),
        "platform": f"{platform.system().lower()}-{platform.machine()}",
    }
    if as_json:
        output.print_json(facts)
    else:
        output.out().print(
            f"toolmesh {facts['toolmesh']} (python {facts['python']}, {facts['platform']})", markup=False
        )


def installed_version() -> str:
    """Return the version of the installed package."""
    try:
        return metadata.version("toolmesh")
    except metadata.PackageNotFoundError:
        return "unknown"
