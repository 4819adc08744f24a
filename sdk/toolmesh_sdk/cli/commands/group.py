"""`toolmesh group`: make several calls at once, from a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.commands.call import check_step
from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.failures import report, reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.json_input import json_file
from toolmesh_sdk.cli.inputs.target import Place, open_client
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh_sdk.client import Client
    from toolmesh_sdk.group import GroupCall, Outcome

_HINT = "FILE"
_KINDS: dict[str, tuple[type, str]] = {
    "arguments": (dict, "an object"),
    "depends_on": (list, "a list of places"),
    "priority": (int, "a number"),
}


@reported
def group(
    calls: Annotated[
        Path, typer.Argument(metavar=_HINT, help="A JSON file: a list of calls, or - to read it from stdin.")
    ],
    session: Annotated[str, typer.Option(help="The session of the calls that name none.")] = "",
    key_secret: options.KeySecret = "",
    max_bytes: options.MaxBytes = options.SHOWN_BYTES,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Make several calls at once and print what became of each; exits with 1 if one of them failed.

    \b
    A call is an object:
      {"tool": "echo", "arguments": {"text": "hello"},
       "depends_on": [0], "on_failure": "cancel_siblings"}

    depends_on are places in the list, from 0, that must have succeeded first. on_failure is ignore, cancel_siblings or cancel_dependent.
    Also: version, idempotency_key, step, session_id, task_id, native_call_id, tool_digest, priority, preview_token.
    """
    wanted = _read(json_file(calls, _HINT), session, key_secret)
    with open_client(Place(url=url, token=token, state=state, ca=ca), timeout, key_secret) as client:
        outcomes = client.call_group(wanted)
        shown = [_Shown(client, call, outcome, max_bytes) for call, outcome in zip(wanted, outcomes, strict=True)]
    if as_json:
        output.print_json({"outcomes": [each.document() for each in shown]})
    else:
        for place, each in enumerate(shown):
            each.print(place)
    if any(each.failed for each in shown):
        raise typer.Exit(FAILED)


class _Shown:
    """One outcome as it is shown, with its content fetched where it is stored."""

    def __init__(self, client: Client, call: GroupCall, outcome: Outcome, limit: int) -> None:
        from toolmesh_sdk.cli.views.results import whole_of

        self._tool, self._outcome = call.tool, outcome
        self._whole = whole_of(client, outcome.result, limit) if outcome.result is not None else None

    @property
    def failed(self) -> bool:
        return self._whole is None or self._whole.error is not None

    def document(self) -> dict[str, Any]:
        from toolmesh_sdk.cli.views.results import Whole, result_document

        if self._whole is not None:
            return {"tool": self._tool, "result": result_document(self._whole)}
        error, synthetic = self._outcome.error, self._outcome.synthetic
        return {
            "tool": self._tool,
            "error": error.to_dict() if error is not None else None,
            "synthetic": result_document(Whole(synthetic)) if synthetic is not None else None,
        }

    def print(self, place: int) -> None:
        from toolmesh_sdk.cli.views.results import print_result

        error = self._outcome.error if self._whole is None else self._whole.error
        console = output.out() if self._whole is not None else output.err()
        console.print(output.text((f"[{place}] {self._tool}", "bold")))
        if self._whole is not None:
            print_result(self._whole)
        if error is not None:
            report(error, as_json=False)


def _read(document: Any, session: str, key_secret: str) -> list[GroupCall]:
    if not isinstance(document, list) or not document:
        raise typer.BadParameter("a list of calls is needed", param_hint=_HINT)
    places = range(len(document))
    return [_call(document[place], f"/{place}", places, session, key_secret) for place in places]


def _call(item: Any, at: str, places: range, session: str, key_secret: str) -> GroupCall:
    from toolmesh_sdk.group import GroupCall

    problem = next(_problems(item, places), None)
    if problem is not None:
        raise typer.BadParameter(at + problem, param_hint=_HINT)
    call = GroupCall(**{"session_id": session, **item, "depends_on": tuple(item.get("depends_on", ()))})
    check_step(call.step or "", key=call.idempotency_key or "", session=call.session_id, key_secret=key_secret)
    return call


def _problems(item: Any, places: range) -> Iterator[str]:
    """Say what is wrong with a call, each with its place inside it."""
    from toolmesh_sdk.group import ON_FAILURE, GroupCall

    if not isinstance(item, dict) or not item.get("tool"):
        yield " is not an object with a tool"
        return
    known = {field.name for field in dataclasses.fields(GroupCall)}
    for name, value in item.items():
        kind, words = _KINDS.get(name, (str, "a text"))
        if name not in known:
            yield f"/{name} is not a field of a call"
        elif not isinstance(value, kind) or isinstance(value, bool):
            yield f"/{name} is not {words}"
    if item.get("priority", 0) not in range(11):
        yield "/priority is not between 0 and 10"
    if any(type(place) is not int or place not in places for place in item.get("depends_on", ())):
        yield "/depends_on names a place that is not in the list"
    if item.get("on_failure", "") not in ON_FAILURE:
        yield f"/on_failure is none of {', '.join(filter(None, ON_FAILURE))}"
