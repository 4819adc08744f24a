"""Says what to write so that a violation of a manifest is solved. Pure.

A fix is a JSON merge patch (RFC 7396) that solves the violation when it is applied as it is. It never claims that a
tool only reads; a fix of side effects or of previews states what the author has to confirm.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolmesh.registry.v1.tool_manifest_pb2 import ToolManifest

from authoring.manifests.needed_secrets import needed_secrets
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.domain.publishing.nested_objects import close_objects, closing_keyword
from services.registry.domain.publishing.rules.schemas import schema_violations
from services.registry.domain.publishing.sample_arguments import sample_arguments

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_DESCRIPTION = 2000
# What other tool formats call the fields of a manifest.
_FOREIGN = {
    "name": ("tool_id",),
    "id": ("tool_id",),
    "inputSchema": ("input", "schema"),
    "input_schema": ("input", "schema"),
    "parameters": ("input", "schema"),
    "outputSchema": ("output", "schema"),
    "output_schema": ("output", "schema"),
    "entry_point": ("execution", "entry_point"),
    "runner": ("execution", "runner"),
}
_FIELDS = tuple(field.name for field in ToolManifest.DESCRIPTOR.fields)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to write, and the merge patch that does it; empty if only the author can know."""

    text: str = ""
    fix: Mapping[str, Any] | None = None


def advise(document: Any, path: str, rule: str) -> Advice:
    """Return the advice for a violation of a document; empty if its message says it all."""
    steps = path.split("/")[1:]
    by_rule = _BY_RULE.get(rule)
    if by_rule is not None:
        return by_rule(document, steps)
    if rule == "form":
        return _form_advice(document, steps)
    return _BY_FIELD[steps[0]](document, steps) if steps and steps[0] in _BY_FIELD else Advice()


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def snake_case(text: str) -> str:
    """Return a name as a tool id: `get-File` and `getFile` become `get_file`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text)
    name = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")
    name = name if name[:1].isalpha() else f"tool_{name}".rstrip("_")
    return (name if len(name) >= 3 else f"{name}_tool")[:255]


def _write(fix: Mapping[str, Any], before: str = "write") -> Advice:
    return Advice(f"{before} {json.dumps(fix, ensure_ascii=False)[1:-1]}", fix)


def _tool_id(document: Any, _: list[str]) -> Advice:
    written = document.get("tool_id") or document.get("name") if isinstance(document, dict) else None
    if isinstance(written, str) and written:
        return _write({"tool_id": snake_case(written)})
    return Advice('write the name in snake_case, such as "tool_id": "read_file"')


def _namespace(document: Any, _: list[str]) -> Advice:
    written = document.get("namespace") if isinstance(document, dict) else None
    if isinstance(written, str) and written:
        return _write({"namespace": snake_case(written).replace("_", "-")[:63]})
    return Advice('write the namespace that you own, such as "namespace": "acme"')


def _description(document: Any, _: list[str]) -> Advice:
    written = document.get("description") if isinstance(document, dict) else None
    if isinstance(written, str) and len(written) > MAX_DESCRIPTION:
        shortened = _shorten(written)
        return Advice(f"keep the first {len(shortened)} characters; the rest belongs into documentation_url",
                      {"description": shortened})  # fmt: skip
    return Advice('write when and how a model should use it, such as "description": "Reads a text file."')


def _shorten(text: str) -> str:
    start = text[:MAX_DESCRIPTION]
    end = max(start.rfind(". "), start.rfind(".\n"), start.rfind("\n"))
    return start[: end + 1].rstrip() if end > MAX_DESCRIPTION // 2 else start.rstrip()


def _title(document: Any, _: list[str]) -> Advice:
    written = document.get("title") if isinstance(document, dict) else None
    if isinstance(written, str) and len(written) > 255:
        return Advice("keep the first 255 characters", {"title": written[:255].rstrip()})
    return Advice('write what people call it, such as "title": "Read file"')


def _execution(document: Any, steps: list[str]) -> Advice:
    if steps[1:] in (["runner"], ["entry_point"], []):
        return Advice('write the implementation, such as "execution": {"entry_point": "pack/module:function"}')
    if steps[1:2] == ["secrets"]:
        return _secret(document, steps)
    return Advice()


def _secret(document: Any, steps: list[str]) -> Advice:
    """Advise a reference. What was written is not repeated: it may be the value itself."""
    use: Any = document
    for step in steps[:3]:
        use = use[int(step)] if isinstance(use, list) and step.isdecimal() else use.get(step, {})
    name = snake_case(str(use.get("name") or "api_key"))[:63] if isinstance(use, dict) else "api_key"
    advised = {"name": name, "secret": f"secret://{name}"}
    execution = {**document["execution"], "secrets": [advised]}
    [command] = needed_secrets([{**document, "execution": execution}]).values()
    python = f'secrets={{"{name}": "secret://{name}"}}'
    return Advice(f"write a reference, never a value: {json.dumps(advised)}, in Python {python}; then {command}")


def _side_effects(document: Any, _: list[str]) -> Advice:
    name = snake_case(str(document.get("tool_id", "tool"))) if isinstance(document, dict) else "tool"
    fix = {"side_effects": [{"resource": f"tool:{name}", "operation": "update"}]}
    if isinstance(document, dict) and "mutation_class" in document:
        return _write(fix, "name what it changes:")
    return _write(fix, 'if it changes nothing, write "mutation_class": "read_only"; else name what it changes:')


def _example(document: Any, _: list[str]) -> Advice:
    """Advise an example with arguments that the schema admits; only the author knows those of a real call."""
    part = document.get("input") if isinstance(document, dict) else None
    written = part.get("schema") if isinstance(part, dict) else None
    # Its dialect and its type are other violations, with advice of their own.
    schema = {**written, "$schema": DIALECT, "type": "object"} if isinstance(written, dict) else None
    checker = JsonSchemaChecker()
    valid = schema is not None and not any(schema_violations("", schema, checker))
    arguments = sample_arguments(schema, checker) if valid else None
    if arguments is None:
        return Advice('write a real call into "input": "examples": [{"arguments": {...}}]')
    fix = {"examples": [{"arguments": arguments}]}
    return Advice(
        f'write a real call into "input", such as {json.dumps(fix, ensure_ascii=False)[1:-1]}', {"input": fix}
    )


def _schema_part(keyword: str, value: Any) -> Callable[[Any, list[str]], Advice]:
    def advice(_: Any, steps: list[str]) -> Advice:
        fix: Any = {keyword: value}
        for step in reversed(steps[:2]):
            fix = {step: fix}
        return Advice(f'write "{keyword}": {json.dumps(value)} in {"/".join(steps[:2])}', fix)

    return advice


def _strict(document: Any, steps: list[str]) -> Advice:
    schema: Any = document
    for step in steps[:2]:
        schema = schema.get(step, {}) if isinstance(schema, dict) else {}
    keywords = [name for name in ("additionalProperties", "unevaluatedProperties") if name in schema]
    fix: Any = dict.fromkeys(keywords, False)
    for step in reversed(steps[:2]):
        fix = {step: fix}
    return Advice(f'write "{keywords[0] if keywords else "additionalProperties"}": false', fix if keywords else None)


def _open_object(document: Any, steps: list[str]) -> Advice:
    """Advise to close an object. Inside of a list the whole list is written, with all its objects closed."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in steps]
    part = _at(document, steps)
    if not isinstance(part, dict):
        return Advice('write "additionalProperties": false')
    fix: Any = closing_keyword(part)
    text = f"write {json.dumps(fix)[1:-1]} into {'/'.join(steps)}"
    lists = [depth for depth in range(2, len(steps)) if isinstance(_at(document, steps[:depth]), list)]
    if lists:
        fix = _at({steps[0]: {steps[1]: close_objects(document[steps[0]][steps[1]])}}, steps[: lists[0]])
    for step in reversed(steps[: lists[0]] if lists else steps):
        fix = {step: fix}
    return Advice(text, fix)


def _at(document: Any, steps: list[str]) -> Any:
    """Return the part of a document at a place; None if there is none."""
    for step in steps:
        if isinstance(document, list) and step.isdecimal() and int(step) < len(document):
            document = document[int(step)]
        else:
            document = document.get(step) if isinstance(document, dict) else None
    return document


def _form_advice(document: Any, steps: list[str]) -> Advice:
    name = steps[0] if len(steps) == 1 else ""
    if name in _FOREIGN and isinstance(document, dict):
        place, fix, more = _FOREIGN[name], document[name], ""
        if place == ("tool_id",):
            fix = snake_case(str(fix))
        elif place == ("input", "schema") and (closed := close_objects(fix)) != fix:
            fix, more = closed, ', with "additionalProperties": false in the objects inside of it'
        for step in reversed(place):
            fix = {step: fix}
        return Advice(f"move it to {'.'.join(place)}{more}", {name: None, **fix})
    if name == "annotations" and isinstance(document, dict) and isinstance(document[name], dict):
        words = {key: each if isinstance(each, str) else json.dumps(each) for key, each in document[name].items()}
        return Advice("write each value as a string", {"annotations": words})
    if name and name not in _FIELDS:
        close = difflib.get_close_matches(name, _FIELDS, 1)
        return Advice(f"did you mean {close[0]}? Else leave it out" if close else "leave it out", {name: None})
    return Advice()


_BY_FIELD: Mapping[str, Callable[[Any, list[str]], Advice]] = {
    "tool_id": _tool_id,
    "namespace": _namespace,
    "description": _description,
    "title": _title,
    "execution": _execution,
}
_BY_RULE: Mapping[str, Callable[[Any, list[str]], Advice]] = {
    "side_effects.required": _side_effects,
    "side_effects.forbidden": lambda document, steps: Advice(
        'leave it out, or write "mutation_class": "write_irreversible"', {"side_effects": None}
    ),
    "dry_run.required": lambda document, steps: Advice(
        'if it can preview its effects (docs/manifests.md), write "dry_run_supported": true;'
        ' else let a person approve every call: "permission": {"approval": "always"}',
        {"dry_run_supported": True},
    ),
    "compensation.required": lambda document, steps: Advice(
        'write the tool that undoes it, such as "compensation_tool": "tools/acme.remove_file";'
        ' if there is none, let a person approve every call: "permission": {"approval": "always"}'
    ),
    "examples.required": _example,
    "schema.dialect": _schema_part("$schema", DIALECT),
    "schema.type": _schema_part("type", "object"),
    "schema.strict": _strict,
    "schema.open_object": _open_object,
}
