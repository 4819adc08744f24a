"""Gives every parameter and the body of an operation a name among the arguments and a place in the request. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from libs.common.errors import Violation
from libs.common.json.schema_guard import DIALECT

BODY = "body"
_MAX_NAME = 128
# OpenAPI says that parameters with these names are ignored: media types and security schemes stand for them.
_IGNORED_HEADERS = frozenset({"accept", "content-type", "authorization"})
_IDEMPOTENCY_HEADER = "idempotency-key"
_QUERY_STYLES = {
    ("form", True): "repeated",
    ("form", False): "comma",
    ("spaceDelimited", False): "space",
    ("pipeDelimited", False): "pipe",
    # With `explode` these two mean the same as `form`.
    ("spaceDelimited", True): "repeated",
    ("pipeDelimited", True): "repeated",
}


@dataclass(slots=True)
class PlacedParameters:
    """The input schema, and the parts of the endpoint that place its arguments."""

    schema: dict[str, Any]
    request: dict[str, Any] = field(default_factory=dict)


def place_parameters(operation: dict[str, Any], notes: list[str], problems: list[Violation]) -> PlacedParameters:
    """Return the arguments of an operation. What has no place in a request is left out with a note; what the operation
    needs is a problem then."""
    placement = _Placement(notes, problems)
    declared = operation.get("parameters")
    parameters = [each for each in (declared if isinstance(declared, list) else ()) if isinstance(each, dict)]
    # The path is literal, so its names come first.
    for parameter in sorted(parameters, key=lambda each: each.get("in") != "path"):
        placement.add(parameter)
    placement.add_body(operation.get("body"), str(operation.get("method", "")))
    definitions = operation.get("$defs")
    schema: dict[str, Any] = {
        "$schema": DIALECT,
        "type": "object",
        "properties": placement.properties,
        "required": placement.required,
        "additionalProperties": False,
        **({"$defs": definitions} if isinstance(definitions, dict) and definitions else {}),
    }
    return PlacedParameters(schema, placement.request())


class _Placement:
    """Collects arguments."""

    def __init__(self, notes: list[str], problems: list[Violation]) -> None:
        self._notes, self._problems = notes, problems
        self.properties: dict[str, Any] = {}
        self.required: list[str] = []
        self._parameters: list[dict[str, Any]] = []
        self._body = self._idempotency_header = ""

    def request(self) -> dict[str, Any]:
        """Return the fields of the endpoint."""
        fields = {
            "parameters": self._parameters,
            "body_argument": self._body,
            "idempotency_header": self._idempotency_header,
        }
        return {name: value for name, value in fields.items() if value}

    def add(self, parameter: dict[str, Any]) -> None:
        """Place one parameter."""
        name, place = str(parameter.get("name", "")), str(parameter.get("in", ""))
        if place == "header" and name.lower() in _IGNORED_HEADERS:
            return
        if place == "header" and name.lower() == _IDEMPOTENCY_HEADER:
            # The mesh sends the key of the call.
            self._idempotency_header = name
            return
        style, problem = _style_of(parameter, place)
        if not 0 < len(name) <= _MAX_NAME - len("_header"):
            problem = f"has no name of at most {_MAX_NAME} characters"
        if problem:
            self._leave_out(parameter, name, place, problem)
            return
        argument = name if name not in self.properties else f"{name}_{place}"
        if argument in self.properties:
            self._leave_out(parameter, name, place, "has the name of another parameter")
            return
        self._describe(argument, parameter)
        if place != "path":
            placed = {"argument": argument, "place": place, "name": name}
            self._parameters.append(placed | ({"array_style": style} if style else {}))

    def add_body(self, body: Any, method: str) -> None:
        """Place the body, as one argument."""
        if not isinstance(body, dict):
            return
        required = body.get("required") is True
        if body.get("media_types") is not None:
            kinds = ", ".join(str(each) for each in body["media_types"]) or "of no media type"
            message = f"is {kinds}; the mesh sends JSON, and no files or forms"
            if required or method not in ("get", "head", "delete"):
                self._problems.append(Violation("body", "openapi.body", message))
            else:
                self._notes.append("the body is not sent: it is not JSON")
            return
        if method in ("get", "head"):
            self._notes.append("the body is not sent: requests that read have none")
            return
        self._body = BODY if BODY not in self.properties else "request_body"
        self.properties[self._body] = body.get("schema") if isinstance(body.get("schema"), dict) else {}
        if required:
            self.required.append(self._body)

    def _describe(self, argument: str, parameter: dict[str, Any]) -> None:
        schema = parameter.get("schema")
        described = dict(schema) if isinstance(schema, dict) else {}
        if isinstance(parameter.get("description"), str) and "description" not in described:
            described["description"] = parameter["description"]
        self.properties[argument] = described
        if parameter.get("required") is True or parameter.get("in") == "path":
            self.required.append(argument)

    def _leave_out(self, parameter: dict[str, Any], name: str, place: str, problem: str) -> None:
        if parameter.get("required") is True or place == "path":
            self._problems.append(Violation(f"parameters.{name}", "openapi.parameter", f"{problem}, but is required"))
        else:
            self._notes.append(f"the parameter {name} is not offered: it {problem}")


def _style_of(parameter: dict[str, Any], place: str) -> tuple[str, str]:
    """Return how the items of an array are written, empty for other values, and why a parameter has no form."""
    types = parameter.get("types")
    kinds = set(types) if isinstance(types, list) else set()
    if parameter.get("content"):
        return "", "is a document inside a parameter"
    if "object" in kinds:
        return "", "is an object in a parameter"
    if place == "path":
        simple = parameter.get("style", "simple") == "simple"
        return "", "" if simple and "array" not in kinds else "is an array or has a style that paths do not take here"
    if place == "header":
        return "comma" if "array" in kinds else "", ""
    if place != "query":
        return "", "travels in a cookie"
    style = str(parameter.get("style", "form"))
    explode = parameter.get("explode", style == "form") is True
    written = _QUERY_STYLES.get((style, explode))
    if written is None:
        return "", f"has the style {style[:32]}"
    return written if "array" in kinds else "", ""
