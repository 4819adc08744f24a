"""Lists the operations of an OpenAPI document, each as a definition that stands alone. Pure.

A definition holds what decides about calls, in a form of ours: parameters with their schemas, the body, the result, and
the security schemes. The registry turns it into a manifest. An operation that has no such form is listed with why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urljoin

from libs.common.json.jsonio import dump
from services.executor.domain.openapi.references import OperationProblemError, resolve
from services.executor.domain.openapi.schema_bundle import Direction, SchemaBundle

METHODS = ("get", "head", "post", "put", "patch", "delete")
MAX_OPERATIONS, MAX_DEFINITION_BYTES, MAX_RESULT_BYTES = 2048, 64 * 1024, 8 * 1024
_MAX_NAME, _MAX_PARAMETERS, _MAX_ALTERNATIVES = 255, 64, 16
_TEXTS = ("operationId", "summary", "description")
_MAX_TEXT = 4000


class DocumentProblemError(Exception):
    """The document as a whole cannot be used. The text says why, in words of ours."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What the operator chose: the operations, and the server that replaces the document's."""

    operations: tuple[str, ...] = ()
    """Patterns of operation ids or tags, such as `repos/*`; none means all."""
    server: str = ""
    document_url: str = ""
    """Relative servers are relative to it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: its definition as JSON, or the reason why it has none."""

    native_name: str
    definition: bytes = b""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ApiDescription:
    """The operations of a document, and what it says about itself."""

    title: str
    version: str
    openapi: str
    operations: tuple[Operation, ...]


def describe_api(document: Any, selection: Selection) -> ApiDescription:
    """Return the chosen operations of a document. Raises DocumentProblemError."""
    if not isinstance(document, dict) or not str(document.get("openapi", "")).startswith(("3.0", "3.1")):
        raise DocumentProblemError("the document is not OpenAPI 3.0 or 3.1")
    found: dict[str, Operation] = {}
    for native_name, method, path, item, operation in _operations(document):
        if not _is_selected(native_name, operation, selection):
            continue
        if len(found) >= MAX_OPERATIONS:
            raise DocumentProblemError(f"the document has more than {MAX_OPERATIONS} operations; select some")
        name = native_name if native_name not in found else f"{method.upper()} {path}"[:_MAX_NAME]
        found[name] = _describe(document, selection, name, (method, path, item, operation))
    if not found:
        raise DocumentProblemError("the document has no operation, or none that was selected")
    about = document["info"] if isinstance(document.get("info"), dict) else {}
    title, version = (_printable(about.get(key, "")) for key in ("title", "version"))
    return ApiDescription(title, version, _printable(document["openapi"]), tuple(found.values()))


def _printable(value: Any) -> str:
    return "".join(letter for letter in str(value)[:_MAX_NAME] if letter.isprintable())


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any], dict[str, Any]]]:
    paths = document.get("paths")
    for path, node in paths.items() if isinstance(paths, dict) else ():
        try:
            item = resolve(document, node)
        except OperationProblemError:
            continue
        for method in METHODS:
            operation = item.get(method)
            if isinstance(operation, dict):
                native = operation.get("operationId")
                usable = isinstance(native, str) and 0 < len(native) <= _MAX_NAME
                yield str(native) if usable else f"{method.upper()} {path}"[:_MAX_NAME], method, path, item, operation


def _is_selected(native_name: str, operation: dict[str, Any], selection: Selection) -> bool:
    tags = operation.get("tags")
    names = [native_name, *(tag for tag in (tags if isinstance(tags, list) else ()) if isinstance(tag, str))]
    return not selection.operations or any(
        fnmatchcase(name, pattern) for name in names for pattern in selection.operations
    )


def _describe(
    document: dict[str, Any],
    selection: Selection,
    native_name: str,
    place: tuple[str, str, dict[str, Any], dict[str, Any]],
) -> Operation:
    method, path, item, operation = place
    requests = SchemaBundle(document, Direction.REQUEST)
    try:
        definition: dict[str, Any] = {
            "method": method,
            "path": path,
            "server": _server(document, item, operation, selection),
            **{key: operation[key][:_MAX_TEXT] for key in _TEXTS if isinstance(operation.get(key), str)},
            "parameters": [*_parameters(document, item, operation, requests)],
            **_body(document, operation, requests),
            "security": _security(document, operation),
        }
        if requests.definitions:
            definition["$defs"] = requests.definitions
        definition["result"] = _result(document, operation)
        encoded = dump(definition)
    except OperationProblemError as problem:
        return Operation(native_name, problem=str(problem))
    if len(encoded) > MAX_DEFINITION_BYTES:
        return Operation(native_name, problem=f"its definition has more than {MAX_DEFINITION_BYTES} bytes")
    return Operation(native_name, encoded)


def _server(document: dict[str, Any], item: dict[str, Any], operation: dict[str, Any], selection: Selection) -> str:
    if selection.server:
        return selection.server
    for holder in (operation, item, document):
        servers = holder.get("servers")
        if isinstance(servers, list) and servers and isinstance(servers[0], dict):
            return _server_url(servers[0], selection)
    return _server_url({"url": "/"}, selection)


def _server_url(server: dict[str, Any], selection: Selection) -> str:
    url, variables = str(server.get("url", "/"))[:2048], server.get("variables")
    for name, variable in variables.items() if isinstance(variables, dict) else ():
        default = variable.get("default", "") if isinstance(variable, dict) else ""
        url = url.replace(f"{{{name}}}", str(default)[:255])
    absolute = urljoin(selection.document_url, url) if selection.document_url else url
    if not absolute.startswith(("https://", "http://")):
        raise OperationProblemError("names no server with an absolute address; give one with --server")
    return absolute.rstrip("/")


def _parameters(
    document: dict[str, Any], item: dict[str, Any], operation: dict[str, Any], schemas: SchemaBundle
) -> Iterator[dict[str, Any]]:
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for holder in (item, operation):
        declared = holder.get("parameters")
        for node in declared if isinstance(declared, list) else ():
            parameter = resolve(document, node)
            merged[str(parameter.get("name", "")), str(parameter.get("in", ""))] = parameter
    if len(merged) > _MAX_PARAMETERS:
        raise OperationProblemError(f"has more than {_MAX_PARAMETERS} parameters")
    for (name, place), parameter in merged.items():
        described: dict[str, Any] = {"name": name, "in": place, "required": parameter.get("required") is True}
        if isinstance(parameter.get("description"), str):
            described["description"] = parameter["description"][:_MAX_TEXT]
        for key in ("style", "explode"):
            if isinstance(parameter.get(key), str | bool):
                described[key] = parameter[key]
        if "content" in parameter:
            described["content"] = True
        else:
            described["schema"] = schemas.add(parameter.get("schema", {}))
            described["types"] = sorted(_types(document, parameter.get("schema", {})))
        yield described


def _types(document: dict[str, Any], schema: Any, depth: int = 0) -> set[str]:
    """Return the types that a schema names, also through references and alternatives; none if any value fits."""
    if not isinstance(schema, dict) or depth > 8:
        return set()
    schema = resolve(document, schema)
    declared = schema.get("type")
    if isinstance(declared, str):
        return {declared}
    if isinstance(declared, list):
        return {each for each in declared if isinstance(each, str)} - {"null"}
    if "properties" in schema:
        return {"object"}
    if "items" in schema:
        return {"array"}
    parts = [part for key in ("allOf", "anyOf", "oneOf") for part in schema.get(key) or () if isinstance(part, dict)]
    return set().union(*(_types(document, part, depth + 1) for part in parts[:32]))


def _body(document: dict[str, Any], operation: dict[str, Any], schemas: SchemaBundle) -> dict[str, Any]:
    if "requestBody" not in operation:
        return {}
    body = resolve(document, operation["requestBody"])
    content = body.get("content")
    media = content if isinstance(content, dict) else {}
    described: dict[str, Any] = {"required": body.get("required") is True}
    json_type = next((each for each in media if _is_json(each)), None)
    if json_type is None:
        described["media_types"] = sorted(str(each)[:100] for each in media)[:16]
    else:
        described["schema"] = schemas.add(resolve(document, media[json_type]).get("schema", {}))
    return {"body": described}


def _result(document: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any]:
    """Describe the content of successful answers: JSON before text, and what else there is."""
    responses = operation.get("responses")
    schemas = SchemaBundle(document, Direction.RESULT)
    alternatives: list[dict[str, Any]] = []
    others: set[str] = set()
    for status, node in responses.items() if isinstance(responses, dict) else ():
        if not str(status).startswith("2"):
            continue
        content = resolve(document, node).get("content")
        media = content if isinstance(content, dict) else {}
        json_type = next((each for each in media if _is_json(each)), None)
        if json_type is not None:
            try:
                schema = schemas.add(resolve(document, media[json_type]).get("schema", {}))
            except OperationProblemError:
                return {"open": True}
        elif not media:
            schema = {"type": "null"}
        elif any(str(each).startswith("text/") for each in media):
            schema = {"type": "string"}
        else:
            others.update(str(each)[:100] for each in media)
            continue
        if schema not in alternatives:
            alternatives.append(schema)
    return _composed(alternatives, others, schemas)


def _composed(alternatives: list[dict[str, Any]], others: set[str], schemas: SchemaBundle) -> dict[str, Any]:
    if not alternatives:
        return {"media_types": sorted(others)[:16]} if others else {"open": True}
    schema = alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
    if schemas.definitions:
        schema = {**schema, "$defs": schemas.definitions}
    if len(dump(schema)) > MAX_RESULT_BYTES:
        return {"open": True, "size": True}
    return {"schema": schema}


def _is_json(media_type: Any) -> bool:
    """Return whether the executor's content type and `accept` header fit."""
    return str(media_type).partition(";")[0].strip().lower() in ("application/json", "*/*")


def _security(document: dict[str, Any], operation: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Return the alternatives of credentials; each names all schemes that a request needs."""
    required = operation.get("security", document.get("security"))
    alternatives = required if isinstance(required, list) else []
    return [
        [_scheme(document, str(name)) for name in each]
        for each in alternatives[:_MAX_ALTERNATIVES]
        if isinstance(each, dict)
    ]


def _scheme(document: dict[str, Any], name: str) -> dict[str, Any]:
    components = document.get("components")
    schemes = components.get("securitySchemes") if isinstance(components, dict) else None
    declared = resolve(document, schemes[name]) if isinstance(schemes, dict) and name in schemes else {}
    keys: tuple[str, ...] = ("type", "in", "name", "scheme")
    fields = {key: str(declared[key])[:128] for key in keys if key in declared}
    # `name` is the header or the query parameter of an API key.
    return {"id": name[:_MAX_NAME], **fields}
