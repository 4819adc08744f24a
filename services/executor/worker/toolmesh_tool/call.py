"""One call, as the tool that answers it sees it."""

from __future__ import annotations

import time

from .frames import encoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

# What a call may say beside its result. More is a mistake or a flood; the mesh reads no more than this.
MOST_NOTES = 1000
LOG_CHARACTERS = 4096
UNDO_BYTES = 64 * 1024
MOST_MICROS = 2**53
_LONGEST = 512
_OPERATIONS = ("create", "update", "delete")


class ToolFailure(Exception):  # noqa: N818  (what authors raise, read aloud)
    """The tool could not do what it was asked. The message is shown to the caller: write it for the caller.

    `partial` says that some of it was done.
    """

    def __init__(self, message: str, *, partial: bool = False) -> None:
        super().__init__(message)
        self.message = sayable(message)
        self.partial = bool(partial)


class Call:
    """What is known of the call beside its arguments, and what the tool has to say beside its result."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.invocation_id: str = request["id"]
        self.idempotency_key: str = request["key"]
        """The caller's key: pass it on to whatever else takes one, so that a repetition has no second effect there."""
        self.preview: bool = request["preview"]
        """True if the call must only find out what it would do. Whatever it changes all the same is thrown away."""
        self._ends: float = time.monotonic() + request["seconds"]
        self._log_left = LOG_CHARACTERS
        self.notes: dict[str, Any] = {"effects": [], "costs": [], "expects": [], "log": []}

    def remaining(self) -> float:
        """Return how many seconds are left until the call is stopped."""
        return max(0.0, self._ends - time.monotonic())

    def report_effect(self, resource: str, operation: str) -> None:
        """Say that something was changed; in a preview, that it would be. The operation is create, update or delete."""
        if operation not in _OPERATIONS:
            raise ValueError("an effect creates, updates or deletes")
        if not str(resource):
            raise ValueError("an effect is one on something")
        self._note("effects", [sayable(resource, _LONGEST), operation])

    def cost(self, category: str, micros: int) -> None:
        """Say what a part of the call cost, in millionths of the currency."""
        if not 0 <= micros <= MOST_MICROS:
            raise ValueError(f"a cost is neither negative nor more than {MOST_MICROS}")
        self._note("costs", [sayable(category, 64), int(micros)])

    def undo(self, arguments: dict[str, Any]) -> None:
        """Name the arguments with which the compensating tool undoes what this call did. Raises for what has no JSON form, or is more
        than the answer has room for."""
        if len(encoded(arguments)) > UNDO_BYTES:
            raise ValueError(f"the arguments of an undoing call have at most {UNDO_BYTES} bytes")
        self.notes["undo"] = dict(arguments)

    def expect(self, condition: str, holds: bool) -> None:
        """Say in a preview what must hold for the call to succeed, and whether it does now."""
        self._note("expects", [sayable(condition, _LONGEST), bool(holds)])

    def impact(self, text: str) -> None:
        """Say in a preview, in a sentence, what the call would mean."""
        self.notes["impact"] = sayable(text, _LONGEST)

    def log(self, text: str) -> None:
        """Write a line for whoever runs the mesh. Callers never see it; a call has a page of it in all."""
        line = sayable(text, self._log_left)
        if line:
            self._log_left -= len(line)
            self._note("log", line)

    def _note(self, kind: str, note: Any) -> None:
        notes = self.notes[kind]
        if len(notes) >= MOST_NOTES:
            raise ValueError(f"a call has at most {MOST_NOTES} {kind}")
        notes.append(note)


def sayable(text: object, most: int | None = None) -> str:
    """Return the beginning of a text as JSON can say it: a name of a file that is not UTF-8 has letters that it cannot."""
    return str(text)[:most].encode("utf-8", "replace").decode()


def previewed_by(forecast: Callable[[dict[str, Any], Call], Any]) -> Callable[[F], F]:
    """Name the function that says what a tool would do. It is called instead of the tool in a preview, with the same
    arguments, and returns what the result would be; effects, expectations and the impact it reports to the call."""

    def marked(function: F) -> F:
        function.preview = forecast  # type: ignore[attr-defined]
        return function

    return marked
