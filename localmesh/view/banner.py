"""The screen that `up` prints when the mesh is ready: addresses, the way to the command line, and a first call."""

from __future__ import annotations

import base64
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from localmesh.ports import USUAL_PORTS
from localmesh.process.child import Launch, run_to_end
from localmesh.settings import ROOT, inherited_environment, state_path
from localmesh.state.files import write_private
from localmesh.state.state import State

MINT = ("-m", "toolmesh_sdk.admin", "mint")
SUBJECT = "did:web:toolmesh.local:users:local"
SCOPES = "tools:call,tools:read,audit:read"
LIFETIME_SECONDS = 12 * 3600
ARGUMENTS = {"text": "hello"}


async def local_token(state: State, max_lifetime: int) -> tuple[str | None, str]:
    """Returns the local user's token, or None and the reason, and keeps it in the state folder.

    A token of an earlier run is kept for the first half of its time, so that a shell that has it need not ask again.
    """
    if kept := _kept_token(state, max_lifetime):
        return kept, ""
    token, reason = await mint_token(state, min(LIFETIME_SECONDS, max_lifetime))
    if token is None:
        state.token_file.unlink(missing_ok=True)
    else:
        write_private(state.token_file, token.encode() + b"\n")
    return token, reason


async def mint_token(state: State, lifetime: int) -> tuple[str | None, str]:
    """Returns a token for the local user, or None and the reason.

    The client library mints it in a subprocess, which keeps gRPC out of the runner's memory.
    """
    grant = ("--sub", SUBJECT, "--tools", "*", "--scopes", SCOPES, "--ttl", str(lifetime))
    argv = (sys.executable, *MINT, "--runtime", str(state.runtime_file), *grant)
    finished = await run_to_end(Launch(argv, ROOT, inherited_environment()), seconds=30)
    lines = finished.output.strip().splitlines()
    last = lines[-1] if lines else f"exit {finished.code}"
    return (last, "") if finished.code == 0 else (None, last)


def render_banner(document: dict[str, Any], reason: str, *, detached: bool) -> str:
    """Renders one screen. `reason` says why there is no token; the token itself is only in its file."""
    end = "`toolmesh down` stops it." if detached else "Ctrl-C stops it."
    seconds, megabytes = document["ready_seconds"], document["rss_bytes"] / 1e6
    lines = [
        f"The mesh is ready after {seconds:.1f} s, holding {megabytes:.0f} MB. {end}",
        "",
        f"  JSON-RPC  {document['gateway']['url']}/rpc{_moved(document, 'edge')}",
        f"  gRPC      {document['grpc']['address']}",
        f"  console   {document['gateway']['url']}/console",
        f"  with TLS  {document['gateway']['tls_url']}/rpc{_moved(document, 'edge-tls')}",
        f"  CA        {document['ca']}",
        f"  token     {Path(document['state']) / 'token' if not reason else f'none could be made: {reason}'}",
        "",
        "In another terminal:",
        "",
        f'  eval "$({_command()} env{_state_option(document)})"',
        f"  toolmesh call echo '{json.dumps(ARGUMENTS)}'",
    ]
    return "\n".join(lines)


def _moved(document: dict[str, Any], name: str) -> str:
    usual, port = USUAL_PORTS[name], document["ports"][name]
    return "" if port == usual else f"   (port {usual} was taken)"


def _command() -> str:
    # A shell may have no toolmesh on its PATH yet; `env` puts it there.
    return shlex.quote(str(Path(sys.executable).parent / "toolmesh"))


def _state_option(document: dict[str, Any]) -> str:
    return "" if document["state"] == str(state_path()) else f" --state {shlex.quote(document['state'])}"


def _kept_token(state: State, max_lifetime: int) -> str:
    try:
        token = state.token_file.read_text().strip()
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        begin, end = int(claims["iat"]), int(claims["exp"])
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        return ""
    return token if time.time() < (begin + end) / 2 and end - begin <= max_lifetime else ""
