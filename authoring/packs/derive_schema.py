"""Derives strict JSON Schemas from the signature of a function.

pydantic builds them, and what it would leave open is refused. Only types that the decorator rebuilds inside
the sandbox are derived.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

import typing_extensions
from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, create_model
from pydantic.errors import PydanticSchemaGenerationError
from typing_extensions import is_typeddict

_SCALARS = (str, int, float, bool)
_UNIONS = (Union, types.UnionType)
_GOOGLE = re.compile(r"^\s{2,}(\w+)(?:\s*\([^)]*\))?:\s+(.+)$")
_SPHINX = re.compile(r"^\s*:param\s+(?:\S+\s+)?(\w+):\s*(.+)$")


class UnderivableError(Exception):
    """A part of a signature has no strict schema. `place` names the part."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"{place}: {message}")
        self.place, self.message = place, message


def input_schema(function: Callable[..., Any], call_type: type) -> dict[str, Any]:
    """Return the schema of the arguments. Raises UnderivableError."""
    hints, described = hints_of(function), parameter_descriptions(function.__doc__ or "")
    members: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise UnderivableError(name, "cannot be given by name; write each argument as a parameter of its own")
        if name not in hints:
            raise UnderivableError(name, "has no annotation")
        if hints[name] is call_type:
            continue
        require_derivable(name, hints[name])
        default = ... if parameter.default is parameter.empty else parameter.default
        members[name] = (
            _portable(hints[name]),
            Field(default, **_described(described, name)),
        )
    schema: dict[str, Any] = _strict(
        _schema_of(lambda: create_model("Arguments", __config__=ConfigDict(extra="forbid"), **members))
    )
    return schema


def output_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the schema of the result: an object, or `{"result": ...}` around any other type."""
    hint = hints_of(function).get("return", inspect.Signature.empty)
    if hint is inspect.Signature.empty:
        raise UnderivableError("return", "has no annotation")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        part = _part_of(hint)
        require_derivable("return", part)
        parts = {"parts": {"type": "array", "items": _strict(_schema_of(lambda: part))}}
        return {"type": "object", "properties": parts, "required": ["parts"], "additionalProperties": False}
    require_derivable("return", hint)
    schema: dict[str, Any] = _strict(_schema_of(lambda: hint))
    if schema.get("type") == "object":
        return schema
    definitions = schema.pop("$defs", None)
    wrapped = {
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
        "additionalProperties": False,
    }
    return wrapped | ({"$defs": definitions} if definitions else {})


def _described(descriptions: dict[str, str], name: str) -> dict[str, Any]:
    # A description of None would replace that of an annotation.
    return {"description": descriptions[name]} if name in descriptions else {}


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function. Raises UnderivableError for a name that does not exist."""
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise UnderivableError("annotations", str(error)) from None


def parameter_descriptions(docstring: str) -> dict[str, str]:
    """Return the descriptions of parameters in a docstring, in the forms of Google and Sphinx."""
    descriptions: dict[str, str] = {}
    in_arguments = False
    for line in inspect.cleandoc(docstring).splitlines():
        if line and not line[0].isspace():
            in_arguments = line.strip() in ("Args:", "Arguments:", "Parameters:")
        if match := _SPHINX.match(line) or (_GOOGLE.match(line) if in_arguments else None):
            descriptions[match[1]] = match[2].strip()
    return descriptions


def summary_of(docstring: str) -> str:
    """Return a docstring without its section of parameters."""
    text = inspect.cleandoc(docstring)
    return re.split(r"\n\s*\n?(?:Args|Arguments|Parameters|Returns|Raises|Yields):\s*\n|\n\s*:param\s", text)[0].strip()


def require_derivable(place: str, hint: Any) -> None:
    """Raise UnderivableError if a type has no strict schema, or if the sandbox cannot rebuild it."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        require_derivable(place, inner[0])
    elif origin in _UNIONS:
        _require_union(place, inner)
    elif origin is list:
        require_derivable(f"{place}[]", inner[0])
    elif origin is dict:
        if inner[0] is not str:
            raise UnderivableError(place, "has keys that are no strings")
        require_derivable(f"{place}{{}}", inner[1])
    elif origin in (typing.Required, typing.NotRequired):
        require_derivable(place, inner[0])
    elif origin is not typing.Literal and hint not in (*_SCALARS, None, type(None)):
        for name, member in _members(place, hint):
            require_derivable(f"{place}.{name}", member)


def _require_union(place: str, inner: tuple[Any, ...]) -> None:
    others = [each for each in inner if each is not type(None)]
    if len(others) > 1 and any(each not in _SCALARS and get_origin(each) is not typing.Literal for each in others):
        raise UnderivableError(place, "is a union of more than plain values, which cannot be told apart")
    for each in others:
        require_derivable(place, each)


def _members(place: str, hint: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return
    if not (isinstance(hint, type) and is_dataclass(hint)) and not is_typeddict(hint):
        name = getattr(hint, "__name__", str(hint))
        message = f"{name} has no strict schema; use str, int, float, bool, Literal, Enum, list[...], dict[str, ...]"
        raise UnderivableError(place, f"{message}, a dataclass or a TypedDict")
    try:
        hints = get_type_hints(hint, include_extras=True)
    except NameError as error:
        raise UnderivableError(place, str(error)) from None
    names = [field.name for field in fields(hint)] if is_dataclass(hint) else list(hints)
    if any(get_args(hints[name])[:1] == (hint,) or hints[name] is hint for name in names):
        raise UnderivableError(place, "contains itself")
    yield from ((name, hints[name]) for name in names)


def _part_of(hint: Any) -> Any:
    if not get_args(hint):
        raise UnderivableError("return", "does not say what it yields; write Iterator[...]")
    return get_args(hint)[0]


def _schema_of(build: Callable[[], Any]) -> dict[str, Any]:
    try:
        return TypeAdapter(_portable(build())).json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as error:
        raise UnderivableError("signature", str(error).splitlines()[0]) from None


def _portable(hint: Any) -> Any:
    """Replace TypedDicts by those of typing_extensions, which alone pydantic reads in every version of Python."""
    if is_typeddict(hint):
        hints = get_type_hints(hint, include_extras=True)
        make_typed_dict: Any = typing_extensions.TypedDict
        return make_typed_dict(
            hint.__name__,
            {name: _typed_dict_member(each, name in hint.__required_keys__) for name, each in hints.items()},
        )
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (list, dict):
        return origin[tuple(_portable(each) for each in inner)]
    if origin in _UNIONS:
        return Union[tuple(_portable(each) for each in inner)]  # noqa: UP007  (built at run time)
    if origin is typing.Annotated:
        return typing.Annotated[(_portable(inner[0]), *map(_constraint, inner[1:]))]
    return hint


def _constraint(metadata: Any) -> Any:
    """Replace the limits of `toolmesh_tool`, which the sandbox has, by those of pydantic."""
    return Field(**metadata.limits) if type(metadata).__module__ == "toolmesh_tool.limits" else metadata


def _typed_dict_member(hint: Any, required: bool) -> Any:
    """Return a member of a TypedDict, marked if it may be absent. Its own mark decides: annotations that are strings
    do not reach the class."""
    origin = get_origin(hint)
    if origin in (typing.Required, typing.NotRequired):
        hint, required = get_args(hint)[0], origin is typing.Required
    return _portable(hint) if required else typing_extensions.NotRequired[_portable(hint)]


def _strict(schema: Any, *, named: bool = False) -> Any:
    """Close every object that lists its properties, and drop the titles that pydantic makes of names."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if named:
        return {name: _strict(part) for name, part in schema.items()}
    keep_as_is = ("default", "const", "enum", "examples")
    strict = {
        key: part if key in keep_as_is else _strict(part, named=key in ("properties", "$defs"))
        for key, part in schema.items()
        if key != "title"
    }
    if "properties" in strict:
        strict["additionalProperties"] = False
    return strict
