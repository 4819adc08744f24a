"""The policy row of each JSON-RPC method, and the peers that may connect. A method without a row is unknown."""

from __future__ import annotations

from collections.abc import Mapping

from libs.common.auth.peers import EDGE, OPERATOR
from services.gateway.domain.rate_limits import BATCHED_CALLS, EXCHANGES, LISTINGS, SEARCHES, SESSIONS, TOKENS, Rate
from services.gateway.forwarded.table import FORWARDED
from services.gateway.mcp.tools.meta_tools import SEARCH
from services.gateway.method import Row

# The edge connects for callers, the operator to diagnose the mesh. The services behind the gateway verify the token and
# decide what a caller may do.
PEERS = frozenset({EDGE, OPERATOR})


# The row of AuthZEN evaluations, one and many.
EVALUATIONS = Row(deadline=10.0, idempotent=True)

# The row of the token endpoint. Each exchange makes another token.
TOKEN_EXCHANGE = Row(deadline=10.0, idempotent=False, rate=EXCHANGES)

# The row of the console's pages and forms; its streams have no deadline.
CONSOLE = Row(deadline=10.0, idempotent=True)

POLICY: Mapping[str, Row] = {
    # Idempotent only with a key, so the gateway itself never repeats it.
    "tools.invoke": Row(deadline=30.0, idempotent=False),
    "tools.invoke_group": Row(deadline=30.0, idempotent=False, rate=BATCHED_CALLS, counted_by="calls"),
    "tools.preview": Row(deadline=30.0, idempotent=True),
    "results.fetch": Row(deadline=10.0, idempotent=True),
    "tools.list": Row(deadline=10.0, idempotent=True, rate=LISTINGS),
    "tools.get": Row(deadline=10.0, idempotent=True),
    "tools.resolve": Row(deadline=10.0, idempotent=True),
    "tools.search": Row(deadline=10.0, idempotent=True, rate=SEARCHES),
    "tools.surface": Row(deadline=10.0, idempotent=True, rate=SEARCHES),
    "tools.schemas": Row(deadline=10.0, idempotent=True),
    # Each call makes another token.
    "tokens.delegate": Row(deadline=10.0, idempotent=False, rate=TOKENS),
    "tokens.narrow": Row(deadline=10.0, idempotent=False, rate=TOKENS),
    "audit.get": Row(deadline=10.0, idempotent=True),
    "audit.query": Row(deadline=15.0, idempotent=True),
    "usage.get": Row(deadline=10.0, idempotent=True),
    "usage.top": Row(deadline=15.0, idempotent=True),
    "rpc.discover": Row(deadline=5.0, idempotent=True),
    **{name: forwarded.row for name, forwarded in FORWARDED.items()},
}

# The row of a client's answer to a question of a tool, and of a stream of MCP that goes on after it was cut.
MCP_ANSWER = Row(deadline=30.0, idempotent=False)
MCP_RESUMED_STREAM = Row(deadline=300.0, idempotent=True)

# The methods of MCP. `subscriptions/listen` is a stream, which ends with the caller's token.
MCP_POLICY: Mapping[str, Row] = {
    "initialize": Row(deadline=5.0, idempotent=False, rate=SESSIONS),
    "ping": Row(deadline=5.0, idempotent=True),
    "server/discover": Row(deadline=5.0, idempotent=True),
    "tools/list": Row(deadline=15.0, idempotent=True, rate=LISTINGS),
    # Idempotent only with a key, like `tools.invoke`.
    "tools/call": Row(deadline=30.0, idempotent=False),
    "tasks/get": Row(deadline=10.0, idempotent=True),
    "tasks/list": Row(deadline=10.0, idempotent=True),
    # Waits for the end of the task.
    "tasks/result": Row(deadline=300.0, idempotent=True),
    "tasks/update": Row(deadline=30.0, idempotent=False),
    "tasks/cancel": Row(deadline=15.0, idempotent=True),
    "logging/setLevel": Row(deadline=5.0, idempotent=True),
    # Those of an upstream may have to start its server.
    "resources/list": Row(deadline=30.0, idempotent=True),
    "resources/templates/list": Row(deadline=30.0, idempotent=True),
    "resources/read": Row(deadline=30.0, idempotent=True),
    "resources/subscribe": Row(deadline=30.0, idempotent=True),
    "resources/unsubscribe": Row(deadline=5.0, idempotent=True),
    "prompts/list": Row(deadline=30.0, idempotent=True),
    "prompts/get": Row(deadline=30.0, idempotent=True),
    "completion/complete": Row(deadline=30.0, idempotent=True),
}

# The rates of tools of the gateway itself, which `tools/call` names.
MCP_TOOL_RATES: Mapping[str, Rate] = {SEARCH: SEARCHES}
