"""Elicitation: shows the question of a tool to an MCP client, and reads the client's answer."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple, cast

import orjson
from toolmesh.executor.v1.invocation_pb2 import InputRequest

from libs.common.errors import MeshError, Reason, Violation

_ID = re.compile(r"question/([0-9a-f-]{36})/([0-9A-Za-z_-]{1,64})/(object|value|json)")
_PRIMITIVES = ("string", "number", "integer", "boolean")
_KEPT = (
    *("type", "title", "description", "default", "enum", "enumNames", "oneOf"),
    *("minLength", "maxLength", "minimum", "maximum"),
)
_FORMATS = ("email", "uri", "date", "date-time")
_AS_JSON = {"type": "string", "description": "The answer, as JSON."}


Form = Literal["object", "value", "json"]


class Question(NamedTuple):
    """A question of a tool. `form` says how the answer of a client becomes the answer to the tool.

    A form of MCP is a flat object. `object`: the answer is that object. `value`: it is the field `answer`. `json`: it
    is the JSON in the text of that field, for schemas that no form can show.
    """

    invocation_id: str
    input_id: str
    form: Form

    @property
    def invocation(self) -> str:
        """The resource name of the invocation."""
        return f"invocations/{self.invocation_id}"

    @property
    def request_id(self) -> str:
        """The id of the request to the client. It names the question, so that any replica takes the answer."""
        return f"question/{self.invocation_id}/{self.input_id}/{self.form}"


def question_of(request_id: Any) -> Question | None:
    """Return the question that a response of a client answers; None for any other response."""
    match = _ID.fullmatch(request_id) if isinstance(request_id, str) else None
    return Question(match[1], match[2], cast("Form", match[3])) if match else None


def ask(invocation_id: str, asked: InputRequest) -> tuple[Question, dict[str, Any]]:
    """Return the question, and the parameters of `elicitation/create`."""
    form, schema = _form_of(orjson.loads(asked.schema or b"{}"))
    params = {"mode": "form", "message": asked.message, "requestedSchema": schema}
    return Question(invocation_id, asked.input_id, form), params


def answer_of(question: Question, result: dict[str, Any]) -> bytes | None:
    """Return the answer for the tool, as JSON; None if the person declined. Raises INVALID_PARAMS."""
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
