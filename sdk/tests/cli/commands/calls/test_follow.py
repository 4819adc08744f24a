"""`toolmesh call --follow`: what is shown while a call runs, and what Ctrl-C does."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh_sdk.cli.commands.calls import follow

from sdk.tests.executor_samples import envelope

NAME = "invocations/00000000-0000-0000-0000-000000000001"
OPENED = pb.StreamInvocationResponse(invocation=ipb.Invocation(name=NAME))
ENDED = ipb.Invocation(name=NAME, state=ipb.INVOCATION_STATE_SUCCEEDED, result=envelope({"n": 1}))


def a_step(sequence: int, **event: Any) -> pb.StreamInvocationResponse:
    return pb.StreamInvocationResponse(event=ipb.InvocationEvent(sequence=sequence, **event))


STEPS = [
    OPENED,
    a_step(1, progress=ipb.Progress(current_step=1, total_steps=2, message="first")),
    a_step(2, input_request=ipb.InputRequest(input_id="q", message="How many?")),
    a_step(3, ended=ENDED),
]


def test_a_followed_call_shows_its_events_and_prints_its_result(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("StreamInvocation", STEPS)
    ran = toolmesh("call", "echo", "{}", "--follow", "--json")
    assert ran.exit_code == 0
    assert json.loads(ran.stdout)["content"] == {"n": 1}
    assert "step 1 of 2  first" in ran.stderr
    assert f"toolmesh jobs resume {NAME}" in ran.stderr
    assert toolmesh("call", "echo", "{}", "--follow", "--detach").exit_code == 2


class Followed:
    """A stream that Ctrl-C interrupts once, on a terminal."""

    def __init__(self, name: str = NAME) -> None:
        self.name, self.canceled = name, 0
        self._interrupted = False

    def __iter__(self) -> Any:
        if not self._interrupted:
            self._interrupted = True
            raise KeyboardInterrupt
        return iter([ipb.InvocationEvent(ended=ENDED)])

    def cancel(self) -> None:
        self.canceled += 1

    def result(self) -> str:
        return "the result"


@pytest.mark.parametrize(
    ("choice", "terminal", "name", "canceled", "printed"),
    [
        ("d", True, NAME, 0, False),
        ("c", True, NAME, 1, True),
        ("g", True, NAME, 0, True),
        ("c", False, NAME, 0, False),
        ("c", True, "", 0, False),
    ],
)
def test_ctrl_c_asks_whether_to_leave_the_call_or_to_cancel_it(
    monkeypatch: pytest.MonkeyPatch, choice: str, terminal: bool, name: str, canceled: int, printed: bool
) -> None:
    stream: Any = Followed(name)
    results: list[Any] = []
    monkeypatch.setattr(follow.sys.stdin, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(typer, "prompt", lambda *words, **options: choice)
    monkeypatch.setattr(follow, "print_loaded", lambda client, result, *rest: results.append(result))
    if printed:
        follow.follow_and_print(None, stream, 0, False)  # type: ignore[arg-type]
        assert results == ["the result"]
    else:
        with pytest.raises(typer.Exit) as left:
            follow.follow_and_print(None, stream, 0, False)  # type: ignore[arg-type]
        assert left.value.exit_code == follow.INTERRUPTED
    assert stream.canceled == canceled
