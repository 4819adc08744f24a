"""Elicitation: shows the question of a tool to an MCP client, and reads the client's answer."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import quote, unquote

import orjson
from toolmesh.executor.v1.invocation_pb2 import InputRequest

from libs.common.errors import MeshError, Reason, Violation

_ID = re.compile(
    r"question/([0-9a-f-]{36})/([0-9A-Za-z_-]{1,64})/(object|value|json|requests|several)(?:/([!-~]{1,768}))?"
)
_PRIMITIVES = ("string", "number", "integer", "boolean")
_KEPT = (
    *("type", "title", "description", "default", "enum", "enumNames", "oneOf"),
    *("minLength", "maxLength", "minimum", "maximum"),
)
_FORMATS = ("email", "uri", "date", "date-time")
_AS_JSON = {"type": "string", "description": "The answer, as JSON."}


Form = Literal["object", "value", "json", "requests", "several"]


class Question(NamedTuple):
    """A question of a tool. `form` says how the answer of a client becomes the answer to the tool.

    A form of MCP is a flat object. `object`: the answer is that object. `value`: it is the field `answer`. `json`: it
    is the JSON in the text of that field, for schemas that no form can show. `requests`: an MCP server asks, and its
    requests go to the client as they are; `key` is the one of them that a request of a session stands for. `several`:
    the same, and the answer waits for those to the other requests.
    """

    invocation_id: str
    input_id: str
    form: Form
    key: str = ""

    @property
    def invocation(self) -> str:
        """The resource name of the invocation."""
        return f"invocations/{self.invocation_id}"

    @property
    def request_id(self) -> str:
        """The id of the request to the client. It names the question, so that any replica takes the answer."""
        named = f"question/{self.invocation_id}/{self.input_id}/{self.form}"
        return f"{named}/{quote(self.key, safe='')}" if self.key else named


def question_of(request_id: Any) -> Question | None:
    """Return the question that a response of a client answers; None for any other response."""
    match = _ID.fullmatch(request_id) if isinstance(request_id, str) else None
    return Question(match[1], match[2], cast("Form", match[3]), unquote(match[4] or "")) if match else None


class ClientRequest(NamedTuple):
    """A request to the client."""

    method: str
    params: dict[str, Any]


def client_requests(asked: InputRequest) -> dict[str, ClientRequest]:
    """Return what a client is asked for, by key: the requests of an MCP server, or a form with the tool's question."""
    if asked.client_requests:
        return {each.key: ClientRequest(each.method, orjson.loads(each.params)) for each in asked.client_requests}
    _, params = ask(asked.input_id, asked)
    return {asked.input_id: ClientRequest("elicitation/create", params)}


def answers_of(asked: Collection[str], responses: dict[str, Any]) -> bytes | None:
    """Return the answer for the MCP server that asked, as JSON; None if a response is missing."""
    if not all(isinstance(responses.get(key), dict) for key in asked):
        return None
    return orjson.dumps({key: responses[key] for key in asked})


def ask(invocation_id: str, asked: InputRequest) -> tuple[Question, dict[str, Any]]:
    """Return the question, and the parameters of `elicitation/create`."""
    if asked.client_requests:
        return Question(invocation_id, asked.input_id, "requests"), {}
    form, schema = _form_of(orjson.loads(asked.schema or b"{}"))
    params = {"mode": "form", "message": asked.message, "requestedSchema": schema}
    return Question(invocation_id, asked.input_id, form), params


def answer_of(question: Question, result: dict[str, Any]) -> bytes | None:
    """Return the answer for the tool, as JSON; None if the person declined. Raises INVALID_PARAMS."""
    if question.form == "requests":
        # A server hears of it when a person declines.
        return orjson.dumps({question.key: result})
    if result.get("action") in ("decline", "cancel"):
        return None
    content = result.get("content")
    if result.get("action") != "accept" or not isinstance(content, dict):
        raise _malformed("action", "accept with content, decline or cancel")
    if question.form == "object":
        return orjson.dumps(content)
    if "answer" not in content or (question.form == "json" and not isinstance(content["answer"], str)):
        raise _malformed("content/answer", "the answer is missing")
    answer = content["answer"]
    return answer.encode() if question.form == "json" else orjson.dumps(answer)


def _form_of(schema: Any) -> tuple[Form, dict[str, Any]]:
    fields = schema.get("properties") if isinstance(schema, dict) and schema.get("type") == "object" else None
    if isinstance(fields, dict) and fields:
        flat = {name: _field(field) for name, field in fields.items()}
        if all(field is not None for field in flat.values()):
            required = [name for name in schema.get("required", []) if name in flat]
            return "object", {"type": "object", "properties": flat, "required": required}
    value = _field(schema)
    shown = {"type": "object", "properties": {"answer": value or _AS_JSON}, "required": ["answer"]}
    return "json" if value is None else "value", shown


def _field(schema: Any) -> dict[str, Any] | None:
    """Return the field of a form; None for a value that no field can hold. The executor checks what is left out."""
    if not isinstance(schema, dict) or schema.get("type") not in _PRIMITIVES:
        return None
    if "enum" in schema and not all(isinstance(value, str) for value in schema["enum"]):
        return None
    kept = {key: schema[key] for key in _KEPT if key in schema}
    if schema.get("format") in _FORMATS:
        kept["format"] = schema["format"]
    return kept


def _malformed(path: str, message: str) -> MeshError:
    return MeshError(Reason.INVALID_PARAMS, violations=[Violation(f"/result/{path}", "form", message)])
