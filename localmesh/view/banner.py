"""The screen that `up` prints when the mesh is ready: addresses and a first call."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

from localmesh.process.child import Launch, run_to_end
from localmesh.settings import ROOT, inherited_environment, state_path
from localmesh.state.state import State

MINT = ("-m", "toolmesh_sdk.admin", "mint")
SUBJECT = "did:web:toolmesh.local:users:local"
SCOPES = "tools:call,tools:read,audit:read"
LIFETIME_SECONDS = 12 * 3600
CALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools.invoke",
    "params": {"tool": "echo", "arguments": {"text": "hello"}},
}


async def mint_token(state: State) -> tuple[str | None, str]:
    """Returns a token for the local user, or None and the reason.

    The client library mints it in a subprocess, which keeps gRPC out of the runner's memory.
    """
    grant = ("--sub", SUBJECT, "--tools", "*", "--scopes", SCOPES, "--ttl", str(LIFETIME_SECONDS))
    argv = (sys.executable, *MINT, "--runtime", str(state.runtime_file), *grant)
    finished = await run_to_end(Launch(argv, ROOT, inherited_environment()), seconds=30)
    lines = finished.output.strip().splitlines()
    last = lines[-1] if lines else f"exit {finished.code}"
    return (last, "") if finished.code == 0 else (None, last)


def render_banner(document: dict[str, Any], token: str | None, reason: str) -> str:
    """Renders the addresses, a token, and two first calls to copy."""
    url = document["gateway"]["url"]
    lines = [
        f"The mesh is ready after {document['ready_seconds']:.1f} s, holding {document['rss_bytes'] / 1e6:.0f} MB.",
        "",
        f"  JSON-RPC  {url}/rpc",
        f"  with TLS  {document['gateway']['tls_url']}/rpc   (authority: {document['ca']})",
        f"  gRPC      {document['grpc']['address']}",
        f"  state     {document['state']}",
    ]
    if token is None:
        return "\n".join([*lines, f"  token     none could be made: {reason}"])
    elsewhere = "" if document["state"] == str(state_path()) else f" --state {shlex.quote(document['state'])}"
    calls = [
        f"  token     {token}",
        "",
        f"curl -s {url}/rpc -H 'authorization: Bearer {token}' -H 'content-type: application/json' \\",
        f"  -d '{json.dumps(CALL)}'",
        "",
        f"toolmesh call echo '{json.dumps(CALL['params']['arguments'])}'{elsewhere}",
    ]
    return "\n".join([*lines, *calls])
