"""Adds the connection options and `--json` to commands, so that no command lists them itself.

A decorated command takes the keywords `target` and `as_json`; Typer sees the options in their place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias

from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.target import Target, select_mesh
from toolmesh_sdk.cli.inputs.tool_completion import with_suggestions
from toolmesh_sdk.errors import ToolmeshError

Command: TypeAlias = Callable[..., None]
DEFAULT_TIMEOUT = 30.0


def add_target_options(timeout: float = DEFAULT_TIMEOUT) -> Callable[[Command], Command]:
    """Add --timeout, the options that select a mesh and an identity, and --json.

    The private key of --cert is --key, and --cert-key where a command has a --key of its own.
    """
    return lambda command: _with_options(command, _shared(timeout))


def add_operator_options(timeout: float = DEFAULT_TIMEOUT) -> Callable[[Command], Command]:
    """Add the same without --token: for commands that only the operator's certificate may run."""
    shared = [option for option in _shared(timeout) if option.name != "token"]
    return lambda command: _with_options(command, shared)


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _shared(timeout: float) -> list[inspect.Parameter]:
    return [
        _option("timeout", options.Timeout, timeout),
        _option("context", options.Context, ""),
        _option("url", options.Url, ""),
        _option("token", options.Token, None),
        _option("state", options.State, None),
        _option("ca", options.Ca, None),
        _option("cert", options.Cert, None),
        _option("cert_key", options.CertKey, None),
    ]


def _with_options(command: Command, shared: list[inspect.Parameter]) -> Command:
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name not in ("target", "as_json")]
    if any(parameter.name == "key" for parameter in own):
        shared = [
            _option("cert_key", options.OnlyCertKey, None) if each.name == "cert_key" else each for each in shared
        ]
    parameters = [*own, *shared, _option("as_json", options.Json, False)]

    @wraps(command)
    def run(*, as_json: bool, **values: Any) -> None:
        target = select_mesh(Target(**{option.name: values.pop(option.name) for option in shared}))
        try:
            command(**values, target=target, as_json=as_json)
        except ToolmeshError as error:
            raise with_suggestions(error, values, target) from None

    # Typer reads the signature and the annotations; both must show the options instead of `target`.
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
