"""An agent in one turn: finds tools for a task, lets a chooser pick one, and calls it through the mesh.

    TOOLMESH_URL=http://127.0.0.1:8080 TOOLMESH_TOKEN=... python examples/agent.py "compute 6 * 7"

`choose` stands where a model would. It is a script, so the example needs no key of a model.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

from toolmesh_sdk import Client, ToolmeshError, ToolSet


def choose(task: str, tools: ToolSet) -> tuple[str, dict[str, Any]]:
    """Return a tool's name and arguments for the task, as a model would given `tools.as_anthropic()`."""
    offered = {tool["name"] for tool in tools.as_anthropic()}
    expression = re.search(r"\d[\d\s+*/().-]*", task)
    if expression and "core__arithmetic" in offered:
        return "core__arithmetic", {"expression": expression.group().strip()}
    return "core__echo", {"text": task}


def main() -> int:
    """Find, choose and call."""
    task = sys.argv[1] if len(sys.argv) > 1 else "compute 6 * 7"
    with Client(os.environ["TOOLMESH_URL"], token=os.environ["TOOLMESH_TOKEN"]) as mesh:
        try:
            found = mesh.search(task, max_results=5)
            tools = mesh.schemas([tool.name for tool in found] or ["core.echo"])
            name, arguments = choose(task, tools)
            tool = tools.find(name)
            result = mesh.call(tool.name, arguments, version=tool.version, tool_digest=tool.digest)
        except ToolmeshError as error:  # a model would read this and choose again
            print(error.message, error.resolution, sep="\n", file=sys.stderr)
            return 1
    print(tool.name, json.dumps(arguments), "->", json.dumps(result.content))
    return 0


if __name__ == "__main__":
    sys.exit(main())
