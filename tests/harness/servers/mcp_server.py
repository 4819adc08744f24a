"""An MCP server for tests, with the standard library alone, so that it starts in any sandbox.

Its tools are the JSON list in the file of its first argument, which may change while it runs. The name of a tool says
how it behaves.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

_WRITING = threading.Lock()
# What a server has beside tools, by the name of its list of tools.
_MORE: dict[str, Any] = {"prompter": {"prompts": {}}, "watched": {"resources": {"subscribe": True}}}
_ANSWERS: queue.Queue[dict[str, Any]] = queue.Queue()


def tool(name: str, *, read_only: bool = True, **changes: Any) -> dict[str, Any]:
    """Return the definition of a tool."""
    return {
        "name": name,
        "description": f"Does what {name} does in tests.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}, "count": {"type": "integer"}}},
        "annotations": {"readOnlyHint": read_only},
        **changes,
    }


def send(message: dict[str, Any]) -> None:
    with _WRITING:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def call(name: str, arguments: dict[str, Any], progress_token: Any) -> dict[str, Any]:
    """Return the result of a call, or misbehave."""
    if name == "garbage":
        with _WRITING:
            sys.stdout.write("this is no message\n")
            sys.stdout.flush()
    if name in ("hang", "garbage"):
        threading.Event().wait()
    if name == "die":
        os._exit(3)
    if name == "flood":
        with _WRITING:
            while True:
                sys.stdout.write("x" * 65536)
    if name == "fail":
        return {"isError": True, "content": [{"type": "text", "text": "no such repository"}]}
    if name == "structured":
        return {"content": [], "structuredContent": {"count": arguments.get("count", 0)}}
    if name == "steps" and progress_token is not None:
        for step in range(1, 3):
            params = {"progressToken": progress_token, "progress": step, "total": 2, "message": f"step {step}"}
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    if name == "fetch":
        # Through the proxy of the environment, as any HTTP library does.
        try:
            with urllib.request.urlopen(arguments["text"], timeout=60) as response:  # noqa: S310
                return {"content": [{"type": "text", "text": response.read().decode()}]}
        except OSError as error:
            return {"isError": True, "content": [{"type": "text", "text": str(error)}]}
    if name == "file":
        # The folder is the one of the list of tools.
        document = (Path(sys.argv[1]).parent / arguments["text"]).read_text()
        return {"content": [], "structuredContent": json.loads(document)}
    if name in ("elicitation/create", "sampling/createMessage", "roots/list"):
        # Asks its client, and answers with the answer.
        send({"jsonrpc": "2.0", "id": "ask", "method": name, "params": {"message": arguments.get("text", "")}})
        asked = _ANSWERS.get()
        return {"content": [{"type": "text", "text": json.dumps(asked.get("result", asked.get("error")))}]}
    if name == "write-lines":
        for level, data in (("info", "first"), ("critical", {"line": 2})):
            send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": level, "data": data}})
    if name == "look":
        seen = {"environment": dict(os.environ)}
        return {"content": [{"type": "text", "text": json.dumps(seen)}]}
    if name == "digest":
        # Of a variable, so that a test knows its value without seeing it.
        value = os.environ.get(arguments["text"], "")
        return {"content": [{"type": "text", "text": hashlib.sha256(value.encode()).hexdigest()}]}
    return {"content": [{"type": "text", "text": arguments.get("text", "")}]}


def answer(message: dict[str, Any], tools: Path) -> None:
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        result: dict[str, Any] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": True}, **_MORE.get(tools.stem, {})},
            "serverInfo": {"name": "fixture", "version": "1.0"},
        }
    elif method == "tools/list":
        result = {"tools": json.loads(tools.read_text())}
    elif method == "tools/call":
        result = call(params["name"], params.get("arguments", {}), params.get("_meta", {}).get("progressToken"))
    elif method == "prompts/get" and params["name"] == "greet":
        text = {"type": "text", "text": f"Greet {params['arguments']['who']}."}
        result = {"messages": [{"role": "user", "content": text}]}
    elif method in ("resources/subscribe", "resources/unsubscribe") and (watched := Path(params["uri"])).is_file():
        if method == "resources/subscribe":
            threading.Thread(target=announce_updates, args=(watched, watched.read_text()), daemon=True).start()
        result = {}
    else:
        send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown method"}})
        return
    send({"jsonrpc": "2.0", "id": message["id"], "result": result})


def announce_updates(watched: Path, known: str) -> None:
    """Tell the client whenever a file changes from what is known of it."""
    while True:
        time.sleep(0.1)
        if (current := watched.read_text()) != known:
            known = current
            params = {"uri": str(watched)}
            send({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params})


def announce_changes(tools: Path, known: str) -> None:
    """Tell the client whenever the list of tools changes from what is known of it."""
    while True:
        time.sleep(0.1)
        if (current := tools.read_text()) != known:
            known = current
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


def main() -> None:
    tools = Path(sys.argv[1])
    threading.Thread(target=announce_changes, args=(tools, tools.read_text()), daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "tools/call" and message["params"]["name"] == "deaf":
            threading.Event().wait()
        if message.get("id") == "ask":
            _ANSWERS.put(message)
        elif "id" in message and "method" in message:
            threading.Thread(target=answer, args=(message, tools), daemon=True).start()


if __name__ == "__main__":
    main()
