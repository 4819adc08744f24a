"""`toolmesh group`: makes several calls at once, from a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.failures import print_error, report_errors
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.call_options import check_step
from toolmesh_sdk.cli.inputs.json_input import read_json_file
from toolmesh_sdk.cli.inputs.target import Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh_sdk.client import Client
    from toolmesh_sdk.group import GroupCall, Outcome

_HINT = "FILE"
_KINDS: dict[str, tuple[type, str]] = {
    "arguments": (dict, "an object"),
    "depends_on": (list, "a list of indexes"),
    "priority": (int, "a number"),
}


@report_errors
@add_target_options()
def group(
    calls: Annotated[Path, typer.Argument(metavar=_HINT, help="A JSON file with a list of calls, or - for stdin.")],
    session: Annotated[str, typer.Option(help="The session of calls without a session_id.")] = "",
    key_secret: options.KeySecret = "",
    max_bytes: options.MaxBytes = options.SHOWN_BYTES,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Make several calls at once, from a JSON file.

    Prints the outcome of each; exits with 1 if one of them failed.

    \b
    A call is an object:
      {"tool": "echo", "arguments": {"text": "hello"},
       "depends_on": [0], "on_failure": "cancel_siblings"}

    depends_on lists the indexes, from 0, of calls that must succeed first. on_failure is ignore, cancel_siblings or
    cancel_dependent. Other fields: version, idempotency_key, step, session_id, task_id, native_call_id, tool_digest,
    priority, preview_token, ticket.

    \b
    Examples:
      toolmesh group calls.json
      echo '[{"tool": "echo", "arguments": {"text": "a"}}]' | toolmesh group -
    """
    group_calls = _parse_calls(read_json_file(calls, _HINT), session, key_secret)
    with open_client(target, key_secret) as client:
        outcomes = client.call_group(group_calls)
        views = [
            _OutcomeView(client, call, outcome, max_bytes) for call, outcome in zip(group_calls, outcomes, strict=True)
        ]
    if as_json:
        output.print_json({"outcomes": [view.to_dict() for view in views]})
    else:
        for index, view in enumerate(views):
            view.print(index)
    if any(view.failed for view in views):
        raise typer.Exit(FAILED)


class _OutcomeView:
    """One outcome, with its stored content fetched, as text and as JSON."""

    def __init__(self, client: Client, call: GroupCall, outcome: Outcome, limit: int) -> None:
        from toolmesh_sdk.cli.views.results import load_content

        self._tool, self._outcome = call.tool, outcome
        self._loaded = load_content(client, outcome.result, limit) if outcome.result is not None else None

    @property
    def failed(self) -> bool:
        return self._loaded is None or self._loaded.error is not None

    def to_dict(self) -> dict[str, Any]:
        from toolmesh_sdk.cli.views.results import LoadedResult, result_document

        if self._loaded is not None:
            return {"tool": self._tool, "result": result_document(self._loaded)}
        error, synthetic = self._outcome.error, self._outcome.synthetic
        return {
            "tool": self._tool,
            "error": error.to_dict() if error is not None else None,
            "synthetic": result_document(LoadedResult(synthetic)) if synthetic is not None else None,
        }

    def print(self, index: int) -> None:
        from toolmesh_sdk.cli.views.results import print_result

        error = self._outcome.error if self._loaded is None else self._loaded.error
        console = output.out() if self._loaded is not None else output.err()
        console.print(output.text((f"[{index}] {self._tool}", "bold")))
        if self._loaded is not None:
            print_result(self._loaded)
        if error is not None:
            print_error(error, as_json=False)


def _parse_calls(document: Any, session: str, key_secret: str) -> list[GroupCall]:
    if not isinstance(document, list) or not document:
        raise typer.BadParameter("expected a list of calls", param_hint=_HINT)
    indexes = range(len(document))
    return [_parse_call(document[index], f"/{index}", indexes, session, key_secret) for index in indexes]


def _parse_call(item: Any, pointer: str, indexes: range, session: str, key_secret: str) -> GroupCall:
    from toolmesh_sdk.group import GroupCall

    problem = next(_problems(item, indexes), None)
    if problem is not None:
        raise typer.BadParameter(pointer + problem, param_hint=_HINT)
    call = GroupCall(**{"session_id": session, **item, "depends_on": tuple(item.get("depends_on", ()))})
    check_step(call.step, key=call.idempotency_key, session=call.session_id, key_secret=key_secret)
    return call


def _problems(item: Any, indexes: range) -> Iterator[str]:
    """Yield the problems of a call, each after the JSON Pointer of its field."""
    from toolmesh_sdk.group import ON_FAILURE, GroupCall

    if not isinstance(item, dict) or not item.get("tool"):
        yield " is not an object with a tool"
        return
    known = {field.name for field in dataclasses.fields(GroupCall)}
    for name, value in item.items():
        kind, expected = _KINDS.get(name, (str, "a string"))
        if name not in known:
            yield f"/{name} is not a field of a call"
        elif not isinstance(value, kind) or isinstance(value, bool):
            yield f"/{name} is not {expected}"
    if item.get("priority", 0) not in range(11):
        yield "/priority is not between 0 and 10"
    if any(type(index) is not int or index not in indexes for index in item.get("depends_on", ())):
        yield "/depends_on has an index that is not in the list"
    if item.get("on_failure", "") not in ON_FAILURE:
        yield f"/on_failure is none of {', '.join(filter(None, ON_FAILURE))}"
