"""Adds the connection options and `--json` to commands, so that no command lists them itself.

A decorated command takes the keywords `target` and `as_json`; Typer sees the options in their place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias

from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.target import Target

Command: TypeAlias = Callable[..., None]
DEFAULT_TIMEOUT = 30.0


def add_target_options(timeout: float = DEFAULT_TIMEOUT) -> Callable[[Command], Command]:
    """Add --timeout, --url, --token, --state, --ca and --json: for commands that call any mesh."""
    shared = [
        _option("timeout", options.Timeout, timeout),
        _option("url", options.Url, ""),
        _option("token", options.Token, None),
        _option("state", options.State, None),
        _option("ca", options.Ca, None),
    ]
    return lambda command: _with_options(command, shared)


def add_local_options(timeout: float = DEFAULT_TIMEOUT) -> Callable[[Command], Command]:
    """Add --timeout, --state and --json: for commands that only the operator of a local mesh can run."""
    shared = [_option("timeout", options.Timeout, timeout), _option("state", options.State, None)]
    return lambda command: _with_options(command, shared)


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _with_options(command: Command, shared: list[inspect.Parameter]) -> Command:
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name not in ("target", "as_json")]
    parameters = [*own, *shared, _option("as_json", options.Json, False)]

    @wraps(command)
    def run(*, as_json: bool, **values: Any) -> None:
        target = Target(**{option.name: values.pop(option.name) for option in shared})
        command(**values, target=target, as_json=as_json)

    # Typer reads the signature and the annotations; both must show the options instead of `target`.
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
