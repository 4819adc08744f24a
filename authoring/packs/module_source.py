"""Reads the source of a pack's module: the lines of functions, parameters and options, and what it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

# The option of the decorator that a field of the manifest comes from.
_OPTION_OF = {
    "/namespace": "namespace",
    "/tool_id": "name",
    "/title": "title",
    "/version": "version",
    "/mutation_class": "mutation_class",
    "/execution/timeout_class": "timeout_class",
    "/execution/timeout_default": "timeout",
    "/execution/network_policy": "hosts",
    "/execution/access_tier": "hosts",
    "/execution/secrets": "secrets",
    "/interface/safety/sandbox_tier": "tier",
    "/input/examples": "examples",
    "/permission/required_scopes": "scopes",
    "/side_effects": "side_effects",
    "/compensation_tool": "compensation",
    "/dry_run_supported": "dry_run",
    "/idempotency": "idempotency",
    "/tags": "tags",
    "/execution/resource_limits": "memory",
    "/execution/progress_supported": "progress",
    "/execution/cancellation_supported": "cancellation",
    "/execution/checkpoint": "checkpoint",
}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class ModuleSource:
    """The syntax tree of one module. Raises SyntaxError for a text that is no Python."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tree = ast.parse(path.read_bytes(), filename=str(path))
        self.functions = {node.name: node for node in self._tree.body if isinstance(node, _Function)}

    def option_names(self) -> set[str]:
        """Return the names of all options that decorators of functions use."""
        return {keyword.arg for node in self.functions.values() for keyword in _keywords(node) if keyword.arg}

    def line_of_option(self, function: str, option: str) -> int:
        """Return the line of an option of a function's decorator, else that of the function."""
        node = self.functions.get(function)
        lines = [] if node is None else [each.value.lineno for each in _keywords(node) if each.arg == option]
        return lines[0] if lines else self.line_of(function)

    def line_of_part(self, function: str, part: str) -> int:
        """Return the line of a parameter, of `return`, or of the function for any other part."""
        node, name = self.functions.get(function), part.partition(".")[0].rstrip("[]{}")
        if node is None:
            return 1
        if name == "return":
            return node.returns.lineno if node.returns is not None else node.lineno
        given = node.args
        parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        lines = [each.lineno for each in parameters if each is not None and each.arg == name]
        return lines[0] if lines else self.line_of(function)

    def line_of_field(self, function: str, pointer: str) -> int:
        """Return the line that a field of the function's manifest comes from."""
        if pointer.startswith("/input/schema/properties/"):
            return self.line_of_part(function, pointer.split("/")[4])
        if pointer.startswith("/output/schema"):
            return self.line_of_part(function, "return")
        node = self.functions.get(function)
        if pointer == "/description" and node is not None and ast.get_docstring(node) is not None:
            return node.body[0].lineno
        for field, option in _OPTION_OF.items():
            if pointer == field or pointer.startswith(f"{field}/"):
                return self.line_of_option(function, option)
        return self.line_of(function)

    def line_of(self, function: str) -> int:
        """Return the line of a function's first decorator, else its own."""
        node = self.functions.get(function)
        if node is None:
            return 1
        return min([node.lineno, *(each.lineno for each in node.decorator_list)])

    def secrets_asked(self, function: str) -> Iterator[tuple[str, int]]:
        """Yield each secret that a function asks its call for by a literal name, with the line."""
        node = self.functions.get(function)
        for call in () if node is None else ast.walk(node):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "secret":
                names = [each.value for each in call.args[:1] if isinstance(each, ast.Constant)]
                if names and isinstance(names[0], str) and _is_parameter(node, call.func.value):
                    yield names[0], call.lineno

    def imports(self) -> Iterator[tuple[str, int]]:
        """Yield the top-level package of each absolute import that runs, with its line."""
        yield from _imports(self._tree)


def _imports(node: ast.AST) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
        yield node.module.partition(".")[0], node.lineno
    elif isinstance(node, ast.If) and _is_type_checking(node.test):
        for other in node.orelse:
            yield from _imports(other)
    elif isinstance(node, ast.Try):
        # A module that handles a missing package does without it.
        for part in (*node.handlers, *node.orelse, *node.finalbody):
            yield from _imports(part)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _imports(child)


def _is_parameter(function: _Function | None, value: ast.expr) -> bool:
    if function is None or not isinstance(value, ast.Name):
        return False
    given = function.args
    return value.id in {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def _keywords(node: _Function) -> list[ast.keyword]:
    calls = [each for each in node.decorator_list if isinstance(each, ast.Call)]
    return [keyword for call in calls for keyword in call.keywords]
