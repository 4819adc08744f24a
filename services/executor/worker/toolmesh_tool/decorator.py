"""The `tool` decorator: a typed function as a tool.

The author's side derives the contract from the annotations (`toolmesh pack build`). Inside the sandbox the decorator
turns the checked arguments into the annotated types and the result into JSON, with the standard library alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# What types cannot say. Each is a field of the manifest, or a short form of one.
OPTIONS = frozenset(
    {
        "namespace", "name", "title", "version", "mutation_class", "timeout_class", "timeout", "tier", "hosts", "ports",
        "reads", "writes", "secrets", "scopes", "side_effects", "compensation", "dry_run", "idempotency", "examples",
        "tags", "memory", "progress", "checkpoint", "cancellation", "manifest",
    }
)  # fmt: skip


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a typed function a tool. What the options leave out is the safe choice. Raises TypeError for others."""
    if unknown := options.keys() - OPTIONS:
        raise TypeError(f"tool() has no option {sorted(unknown)[0]}")
    return _decorate(function, options) if function is not None else lambda given: _decorate(given, options)


def _decorate(function: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    def entry(arguments: dict[str, Any], call: Any) -> Any:
        return _run(function, entry, arguments, call)

    entry.__name__, entry.__doc__, entry.__module__ = function.__name__, function.__doc__, function.__module__
    entry.__qualname__ = function.__qualname__
    entry.tool_function, entry.tool_options = function, options  # type: ignore[attr-defined]
    preview = getattr(function, "preview", None)
    if preview is not None:

        def forecast(arguments: dict[str, Any], call: Any) -> Any:
            return _run(preview, forecast, arguments, call)

        entry.preview = forecast  # type: ignore[attr-defined]
    return entry


def _run(function: Callable[..., Any], entry: Any, arguments: dict[str, Any], call: Any) -> Any:
    from inspect import isawaitable
    from types import AsyncGeneratorType, GeneratorType

    hints = entry.__dict__.get("hints")
    if hints is None:
        from typing import get_type_hints

        hints = entry.hints = get_type_hints(function)
    given = {name: _typed(hints.get(name), value) for name, value in arguments.items()}
    given |= {name: call for name, hint in hints.items() if name != "return" and hint is type(call)}
    value = function(**given)
    if isawaitable(value):
        import asyncio

        value = asyncio.run(_awaited(value))
    if isinstance(value, AsyncGeneratorType):
        value = _awaited_parts(value)
    return _plain_parts(value) if isinstance(value, GeneratorType) else as_result(value)


async def _awaited(value: Any) -> Any:
    return await value


def _awaited_parts(stream: Any) -> Any:
    import asyncio

    end = object()

    async def following() -> Any:
        return await anext(stream, end)

    with asyncio.Runner() as runner:
        while (part := runner.run(following())) is not end:
            yield part


def _plain_parts(stream: Any) -> Any:
    for part in stream:
        yield _plain(part)


def as_result(value: Any) -> Any:
    """Return a result as JSON: an object as it is, any other value as `{"result": value}`."""
    plain = _plain(value)
    return plain if isinstance(plain, dict) else {"result": plain}


def _typed(hint: Any, value: Any) -> Any:
    """Return a checked JSON value as the annotated type."""
    from typing import get_args, get_origin, is_typeddict

    if value is None or hint is None:
        return value
    origin, inner = get_origin(hint), get_args(hint)
    if origin is list:
        return [_typed(inner[0], item) for item in value]
    if origin is dict:
        return {name: _typed(inner[1], item) for name, item in value.items()}
    if inner and type(None) in inner:
        return _typed(next(each for each in inner if each is not type(None)), value)
    if not isinstance(hint, type) or is_typeddict(hint):
        return value
    return _instance(hint, value)


def _instance(hint: type, value: Any) -> Any:
    from dataclasses import fields, is_dataclass
    from enum import Enum

    if is_dataclass(hint):
        from typing import get_type_hints

        hints = get_type_hints(hint)
        names = [field.name for field in fields(hint) if field.name in value]
        return hint(**{name: _typed(hints[name], value[name]) for name in names})
    if issubclass(hint, Enum):
        return hint(value)
    # JSON writes 3.0 for 3 and 3 for 3.0.
    return hint(value) if hint in (int, float) and not isinstance(value, bool) else value


def _plain(value: Any) -> Any:
    from dataclasses import fields, is_dataclass
    from enum import Enum

    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
