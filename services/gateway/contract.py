"""The JSON-RPC methods and their parameters, in one table. It validates every call and is shown by `rpc.discover`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jsonschema_rs

from libs.common.deadline_header import HIGHEST_MS
from libs.common.errors import Violation
from libs.common.json.json_pointer import escaped, pointer_of
from services.gateway.domain.errors import positional_params, wrong_params
from services.gateway.forwarded.methods import methods as forwarded_methods
from services.gateway.method import Method, Param, Schema, text
from services.gateway.reading_methods import READING_METHODS

_OBJECT: Schema = {"type": "object"}
_VISIBLE = "^[!-~]*$"
_TOOL = Param(
    "tool", "The tool: `echo`, `acme.send_email` or `tools/acme.send_email`.", text(320, lowest=1), required=True
)
_VERSION = Param("version", "Exact, `latest`, `^1.2`, `~1.2`, `1.x` or comparisons; absent means `latest`.", text(128))

_CALL = (
    _TOOL,
    _VERSION,
    Param("arguments", "The tool's arguments; absent means `{}`.", _OBJECT),
    Param("session_id", "The session that the caller groups its calls by.", text(128, pattern=_VISIBLE)),
    Param("task_id", "The task that the call is a part of.", text(128)),
    Param("native_call_id", "The id that the caller's own protocol gave the call.", text(255)),
    Param(
        "tool_digest",
        "The digest of the version whose schema the caller knows; a deferred tool asks for it.",
        text(71, pattern="^(sha256:[0-9a-f]{64})?$"),
    ),
)
_EFFECTIVE = (
    Param("idempotency_key", "Makes a repeated call answer the first result.", text(255, pattern=_VISIBLE)),
    Param(
        "priority",
        "How urgent it is beside others that wait, 1 to 10; absent means as its tool says.",
        {"type": "integer", "minimum": 1, "maximum": 10},
    ),
    Param("preview_token", "Shows that this very call was previewed, where that is demanded.", text(1024)),
)
_TIMEOUT = Param(
    "timeout_ms",
    "How long the call may take; the `x-deadline-ms` header bounds it too.",
    {"type": "integer", "minimum": 1, "maximum": HIGHEST_MS},
)
_GROUPED: Schema = {
    "type": "object",
    "properties": {
        **{param.name: dict(param.schema) for param in (*_CALL, *_EFFECTIVE)},
        "depends_on": {
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "maximum": 63},
            "uniqueItems": True,
            "maxItems": 63,
        },
        "on_failure": {"enum": ["ignore", "cancel_siblings", "cancel_dependent"]},
    },
    "required": ["tool"],
    "additionalProperties": False,
}

METHODS: tuple[Method, ...] = (
    Method(
        "tools.invoke",
        "Runs one tool and returns its result envelope.",
        "The result envelope: `structured_content` is the tool's own result.",
        (*_CALL, *_EFFECTIVE, _TIMEOUT),
    ),
    Method(
        "tools.invoke_group",
        "Runs several calls as one group, some after others where they depend on them.",
        "`outcomes`, one for each call in their order: its `result` envelope and its `error`, whichever there is.",
        (
            Param(
                "calls",
                "The calls, each with the parameters of `tools.invoke`, the places of those it `depends_on`, and "
                "what its failure does to the others.",
                {"type": "array", "items": _GROUPED, "minItems": 1, "maxItems": 64},
                required=True,
            ),
            _TIMEOUT,
        ),
    ),
    Method(
        "tools.preview",
        "Says what a call would do without doing it.",
        "The `changes`, `preconditions` and `impact`, the `predicted_result` or why it is left out, and the "
        "`preview_token` that `tools.invoke` takes.",
        (*_CALL, _TIMEOUT),
    ),
    Method(
        "results.fetch",
        "Reads a piece of a result that was stored instead of embedded.",
        "`content` in base64, its `offset`, and the `size_bytes` and `digest` of the whole.",
        (
            Param("ref", "The reference, `results/...`.", text(44, pattern="^results/[0-9a-f-]{36}$"), required=True),
            Param("access_token", "The token that came with it.", text(512, lowest=1), required=True),
            Param("offset", "Where to begin, in bytes.", {"type": "integer", "minimum": 0, "maximum": 2**53}),
            Param(
                "max_bytes",
                "How many bytes at most; absent means 1 MiB.",
                {"type": "integer", "minimum": 1, "maximum": 1048576},
            ),
        ),
    ),
    Method(
        "tools.list",
        "Lists tools in order of their names, a page at a time.",
        "`tools`, each with the `version` that `latest` means, and `next_page_token`, empty after the last page.",
        (
            Param(
                "page_size", "How many at most; absent means 100.", {"type": "integer", "minimum": 1, "maximum": 1000}
            ),
            Param("page_token", "Where to continue: the `next_page_token` of the same query.", text(1024)),
            Param("namespace", "Only tools of this namespace.", text(63)),
            Param("tags", "Only tools with all of these tags.", {"type": "array", "items": text(64), "maxItems": 16}),
            Param(
                "usable_only",
                "Only tools that the caller may use now, by its token and by policy; a page may then hold fewer, "
                "even none.",
                {"type": "boolean"},
            ),
        ),
    ),
    Method(
        "tools.get",
        "Returns one tool and its versions.",
        "`tool` and its `versions`, the highest first.",
        (_TOOL,),
    ),
    Method(
        "tools.resolve",
        "Says which version a reference means, and the digest that pins it.",
        "The version, with `input_schema` and `output_schema`.",
        (_TOOL, _VERSION),
    ),
    *READING_METHODS,
    *forwarded_methods(),
    Method("rpc.discover", "Describes this interface, in the form of OpenRPC.", "The OpenRPC document."),
)


class Parameters:
    """Checks the parameters of one method."""

    def __init__(self, method: Method) -> None:
        self._validator = jsonschema_rs.Draft202012Validator(schema_of(method), mask="the value", offline=True)
        # Their content is checked against the tool's schema later; checking it here would walk every byte once more.
        self._opaque = tuple(param.name for param in method.params if param.schema is _OBJECT)

    def check(self, params: dict[str, Any] | list[Any]) -> dict[str, Any]:
        """Return the parameters, or raise INVALID_PARAMS with every violation."""
        if type(params) is not dict:
            raise positional_params()
        shown = params
        for name in self._opaque:
            if type(params.get(name)) is dict:
                shown = {**params, name: {}}
        if self._validator.is_valid(shown):
            return params
        violations = [v for error in self._validator.iter_errors(shown) for v in _violations(error)]
        raise wrong_params(violations)


def schema_of(method: Method) -> dict[str, Any]:
    """Return the JSON Schema of a method's parameters. Undeclared parameters are refused."""
    return {
        "type": "object",
        "properties": {param.name: dict(param.schema) for param in method.params},
        "required": [param.name for param in method.params if param.required],
        "additionalProperties": False,
    }


def describe(methods: Iterable[Method]) -> dict[str, Any]:
    """Return the OpenRPC document of the methods."""
    return {
        "openrpc": "1.3.2",
        "info": {"title": "Toolmesh", "version": "1.0.0", "description": "Governed tool calls over JSON-RPC 2.0."},
        "methods": [_described(method) for method in methods],
    }


def _described(method: Method) -> dict[str, Any]:
    params = [
        {
            "name": param.name,
            "description": param.description,
            "required": param.required,
            "schema": dict(param.schema),
        }
        for param in method.params
    ]
    return {
        "name": method.name,
        "summary": method.summary,
        "paramStructure": "by-name",
        "params": params,
        "result": {"name": "result", "description": method.result, "schema": {"type": "object"}},
    }


def _violations(error: Any) -> list[Violation]:
    kind = error.kind
    path = pointer_of(error.instance_path)
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
        # The caller chose the names; the bound keeps the response small.
        return [
            Violation(f"{path}/{escaped(name[:100])}", "additionalProperties", "is not a parameter of this method")
            for name in kind.unexpected[:50]
        ]
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        return [Violation(f"{path}/{escaped(kind.property)}", "required", "is required")]
    return [Violation(path, str(error.schema_path[-1]), error.message)]
