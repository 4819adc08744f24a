"""Exit codes of the command line, and the help text that lists them."""

from __future__ import annotations

from toolmesh.common.v1.error_table import Reason

from toolmesh_sdk.errors import ToolmeshError

OK, FAILED, USAGE, UNREACHABLE, REFUSED, DEADLINE = 0, 1, 2, 3, 4, 5

# \b keeps the line breaks of a paragraph.
EPILOG = """\
\b
Connection: --url, --context, TOOLMESH_URL, --state or TOOLMESH_STATE, else the
  mesh of `toolmesh context use`, else the local one in ~/.local/state/toolmesh.
Operators: --cert and --key (or a context) reach the services of any mesh; on
  the local mesh its own certificate is used.
Token: --token, else TOOLMESH_TOKEN, else a five-minute token that the local
  mesh mints for you.
Output: with --json, stdout holds only JSON; a failure is {"error": {...}}.
  Remarks for people go to stderr.

\b
Exit codes:
  0  success
  1  the call failed
  2  wrong usage; explained on stderr, with --json too
  3  no mesh is running, or it cannot be reached
  4  authorization refused
  5  deadline exceeded
"""


def exit_code(error: ToolmeshError) -> int:
    """Return the exit code of a failure."""
    if error.reason is Reason.SERVICE_UNAVAILABLE and not error.answered:
        return UNREACHABLE
    return {"AUTHORIZATION_DENIED": REFUSED, "DEADLINE_EXCEEDED": DEADLINE}.get(error.category, FAILED)
