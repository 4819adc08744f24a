"""Exit codes of the command line, and the words that explain them."""

from __future__ import annotations

from toolmesh.common.v1.error_table import Reason

from toolmesh_sdk.errors import ToolmeshError

OK, FAILED, USAGE, UNREACHABLE, REFUSED, DEADLINE = 0, 1, 2, 3, 4, 5

# The mark keeps the lines of a paragraph as they are.
EPILOG = """\
\b
Connection: --url, else TOOLMESH_URL, else the local mesh whose state is in
  --state, TOOLMESH_STATE or ~/.local/state/toolmesh.
Token: --token, else TOOLMESH_TOKEN, else one for five minutes that the local
  mesh mints for you.
Output: with --json, stdout holds JSON and nothing else; a failure is
  {"error": {...}} there, too. Stderr is for people.

\b
Exit codes:
  0  done
  1  the call failed
  2  wrong usage; explained on stderr, also with --json
  3  no mesh is running, or it cannot be reached
  4  authorization refused
  5  the deadline passed
"""


def exit_code(error: ToolmeshError) -> int:
    """Return the exit code of a failure."""
    if error.reason is Reason.SERVICE_UNAVAILABLE and not error.answered:
        return UNREACHABLE
    return {"AUTHORIZATION_DENIED": REFUSED, "DEADLINE_EXCEEDED": DEADLINE}.get(error.category, FAILED)
