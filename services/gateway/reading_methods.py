"""The JSON-RPC methods that find tools, derive tokens, and read the audit log and usage."""

from __future__ import annotations

from services.gateway.method import Method, Param, Schema, text


def _texts(items: int, highest: int, *, pattern: str = "") -> Schema:
    return {"type": "array", "items": text(highest, lowest=1, pattern=pattern), "maxItems": items}


def _whole(lowest: int, highest: int) -> Schema:
    return {"type": "integer", "minimum": lowest, "maximum": highest}


_CAPABILITIES = Param("capabilities", "Capabilities that are wanted, such as `data.query`.", _texts(16, 255))
_FILTER = (
    Param("namespaces", "Only tools of these namespaces.", _texts(64, 63)),
    Param("tags", "Only tools with all of these tags.", _texts(16, 64)),
    Param("min_trust", "The least trust, 0 to 1.", {"type": "number", "minimum": 0, "maximum": 1}),
    Param("read_only", "Only tools that change nothing.", {"type": "boolean"}),
)
_TOKENIZER = Param("tokenizer", "How tokens are counted: `o200k_base` or `cl100k_base`.", text(64))
_PAGE = Param("page_token", "Where to continue: the `next_page_token` of the same query.", text(1024))
_TIME = text(40)
_TIMES = (
    Param("from_time", "At or after this time, RFC 3339.", _TIME),
    Param("to_time", "Before this time, RFC 3339.", _TIME),
)
_BOUNDS = (
    Param("scopes", "What else the token may do; nothing is passed on unless it is named.", _texts(64, 128)),
    Param("resources", "Resources that it is confined to; absent means those of the caller's token.", _texts(64, 512)),
    Param("calls", "How many calls it may make.", _whole(1, 2**53)),
    Param("ttl_ms", "How long it holds; absent means as long as allowed.", _whole(1, 2**53)),
    Param("session_id", "The session that it is bound to.", text(128, pattern="^[!-~]*$")),
)
_USAGE = (
    Param("tool", "The tool, as a reference or a resource name.", text(320)),
    Param("version", "A version of that tool, exactly.", text(128)),
    Param("subject", "The subject of the callers.", text(512)),
    Param("task_id", "The task.", text(128)),
    *_TIMES,
)

READING_METHODS: tuple[Method, ...] = (
    Method(
        "tools.search",
        "Searches tools by name, keywords or meaning.",
        "`tools`, the best first, each with its `score`; when there are none, `no_match` says why.",
        (
            Param("query", "A name, keywords or a sentence.", text(2000)),
            _CAPABILITIES,
            *_FILTER,
            Param("version", "Only tools with a version that this constraint accepts.", text(128)),
            Param("max_results", "How many at most; absent means 10.", _whole(1, 100)),
            Param("keywords_only", "Leaves out the search by meaning.", {"type": "boolean"}),
        ),
    ),
    Method(
        "tools.surface",
        "Compiles the text about tools that a model reads for one task, within a token budget.",
        "`surface`, whose `blocks` hold the text, or `budget_too_small` with the `required_tokens`.",
        (
            Param("task", "What the model is to do.", text(8000)),
            Param("token_budget", "How many tokens the text may have.", _whole(1, 1_000_000), required=True),
            _CAPABILITIES,
            *_FILTER,
            _TOKENIZER,
            Param("model", "The model that reads the text.", text(255)),
            Param("scope", "What the surface is for.", text(255)),
        ),
    ),
    Method(
        "tools.schemas",
        "Returns the schemas of tools, with the digests that pin them.",
        "`schemas` in the order of the request, and `unloaded` with the reason of each that is missing.",
        (
            Param(
                "tools",
                "The tools, as references or as resource names of versions.",
                {**_texts(50, 460), "minItems": 1},
                required=True,
            ),
            Param("detail", "Adds whole schemas and examples to the text.", {"type": "boolean"}),
            _TOKENIZER,
        ),
    ),
    Method(
        "tokens.delegate",
        "Derives a token for an agent from the caller's token.",
        "The `token`, a secret, and its `claims`.",
        (
            Param(
                "agent",
                "The agent, a DID.",
                text(512, pattern="^did:[a-z0-9]+:[A-Za-z0-9._:%-]+$"),
                required=True,
            ),
            Param("tools", "Tools that it may call, such as `echo@^1`; absent means the caller's.", _texts(256, 450)),
            *_BOUNDS,
            Param("delegation_depth", "How often it may be delegated again.", _whole(0, 8)),
        ),
    ),
    Method(
        "tokens.narrow",
        "Derives a token for one tool from the caller's token.",
        "The `token`, a secret, and its `claims`.",
        (Param("tool", "The tool, such as `echo` or `echo@^1.2`.", text(450, lowest=1), required=True), *_BOUNDS),
    ),
    Method(
        "audit.get",
        "Returns one audit record.",
        "The `record`, its place in the log, and the bytes that are hashed in base64.",
        (
            Param(
                "name",
                "The record, `logs/{log}/records/{sequence}` or `records/{id}`.",
                text(200, pattern="^(logs/[a-z0-9-]+/records/[0-9]+|records/[0-9a-zA-Z-]+)$"),
                required=True,
            ),
        ),
    ),
    Method(
        "audit.query",
        "Reads audit records, a page at a time.",
        "`records`, the newest first unless `ascending`, and `next_page_token`, empty after the last page.",
        (
            Param("subject", "The caller's subject.", text(512)),
            Param("tool_prefix", "The resource name of a version, or its beginning: `tools/core.echo/`.", text(512)),
            Param("trace_id", "The trace.", text(64)),
            Param("invocation_id", "The invocation.", text(128)),
            Param("ticket", "The approval ticket.", text(128)),
            Param("authorization", "The decision.", {"enum": ["allow", "deny", "requires_approval"]}),
            Param("status", "The outcome.", {"enum": ["success", "error", "timeout"]}),
            *_TIMES,
            Param("page_size", "How many at most; absent means 100.", _whole(1, 1000)),
            _PAGE,
            Param("ascending", "Log order, oldest first.", {"type": "boolean"}),
        ),
    ),
    Method(
        "usage.get",
        "Counts calls, in total and by day.",
        "`total`, `days` and the `coverage` of the counts.",
        _USAGE,
    ),
    Method(
        "usage.top",
        "Ranks tools, versions, callers or tasks by their usage.",
        "`entries`, the largest first, and `next_page_token`, empty after the last page.",
        (
            Param("group", "What is ranked.", {"enum": ["tool", "version", "caller", "task"]}, required=True),
            Param(
                "order", "What the order is by; absent means calls.", {"enum": ["calls", "errors", "cost", "latency"]}
            ),
            *_USAGE,
            Param("page_size", "How many at most; absent means 20.", _whole(1, 100)),
            _PAGE,
        ),
    ),
)
