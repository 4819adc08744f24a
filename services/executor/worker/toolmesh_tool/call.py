"""The call object that a tool function gets beside its arguments."""

from __future__ import annotations

import time

from .channel import CallChannel
from .frames import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

# Limits of what a call reports beside its result; the executor reads no more than this.
MAX_NOTES = 1000
UNDO_BYTES = 64 * 1024
MAX_MICROS = 2**53
_MAX_TEXT = 512
_MAX_LINE = 2000
_MAX_QUESTION = 2000
_MAX_LABEL = 64
# Another thread of the tool may wait that long to exchange a message.
_POLL_SECONDS = 0.2
_SEVERITIES = ("debug", "info", "warning", "error")
_OPERATIONS = ("create", "update", "delete")


class ToolFailure(Exception):  # noqa: N818  (public name that tool authors raise)
    """The tool could not do what it was asked to. The message is shown to the caller.

    `partial` means that a part of the work was done.
    """

    def __init__(self, message: str, *, partial: bool = False) -> None:
        super().__init__(message)
        self.message = to_unicode(message)
        self.partial = bool(partial)


class InputUnavailableError(Exception):
    """No caller can answer: the call was not started as a job, or its answer cannot be had."""


class Call:
    """Properties of the call beside its arguments, and methods to report beside the result."""

    def __init__(
        self,
        request: dict[str, Any],
        log: Callable[[str], None] = lambda text: None,
        channel: CallChannel | None = None,
        resume_state: Any = None,
    ) -> None:
        self.invocation_id: str = request["id"]
        self.idempotency_key: str = request["key"]
        """The caller's key. Pass it on to other services, so that a retry has no second effect there."""
        self.preview: bool = request["preview"]
        """True if the call must only determine what it would do. Its changes are discarded."""
        self._ends: float = time.monotonic() + request["seconds"]
        self._log, self._channel = log, channel
        self._secrets: dict[str, str] = request.get("secrets", {})
        self.resume_state: Any = resume_state
        """The state of the checkpoint that the call continues from; None if it starts from the beginning."""
        self.notes: dict[str, Any] = {"effects": [], "costs": [], "expects": []}

    def remaining(self) -> float:
        """Return the seconds until the call is stopped."""
        return max(0.0, self._ends - time.monotonic())

    def secret(self, name: str) -> str:
        """Return a credential that the tool declares with `secrets`, as it is now. Do not keep it for later calls.

        What the call prints, reports or returns of it is replaced by `[redacted]`. Raises KeyError for any other name.
        """
        if name not in self._secrets:
            raise KeyError(f"the tool declares no secret {name}; name it in @tool(secrets=...)")
        return self._secrets[name]

    def report_effect(self, resource: str, operation: str) -> None:
        """Report a change, or in a preview an expected change. The operation is create, update or delete."""
        if operation not in _OPERATIONS:
            raise ValueError("the operation of an effect must be create, update or delete")
        if not str(resource):
            raise ValueError("an effect needs a resource")
        self._note("effects", [to_unicode(resource, _MAX_TEXT), operation])

    def cost(self, category: str, micros: int) -> None:
        """Report the cost of a part of the call, in millionths of the currency."""
        if not 0 <= micros <= MAX_MICROS:
            raise ValueError(f"a cost must be between 0 and {MAX_MICROS}")
        self._note("costs", [to_unicode(category, 64), int(micros)])

    def undo(self, arguments: dict[str, Any]) -> None:
        """Report the arguments with which the compensating tool undoes this call. Raises if they have no JSON form or
        are too large."""
        if len(encode(arguments)) > UNDO_BYTES:
            raise ValueError(f"undo arguments are limited to {UNDO_BYTES} bytes")
        self.notes["undo"] = dict(arguments)

    def expect(self, condition: str, holds: bool) -> None:
        """Report in a preview a condition of success and whether it holds now."""
        self._note("expects", [to_unicode(condition, _MAX_TEXT), bool(holds)])

    def impact(self, text: str) -> None:
        """Report in a preview the impact of the call in one sentence."""
        self.notes["impact"] = to_unicode(text, _MAX_TEXT)

    def log(self, text: str, severity: str = "info") -> None:
        """Write a line to the log of the tool, as `print` does; see `toolmesh logs --tool`.

        The caller of a job sees it too. The severity is debug, info, warning or error.
        """
        if severity not in _SEVERITIES:
            raise ValueError("the severity of a line must be debug, info, warning or error")
        self._log(to_unicode(text) + "\n")
        if self._channel is not None:
            for line in to_unicode(text, _MAX_LINE).splitlines():
                self._channel.report("log", {"severity": severity, "text": line})

    def progress(
        self,
        *,
        percent: float | None = None,
        step: int = 0,
        of: int = 0,
        message: str = "",
        bytes_read: int = 0,
        bytes_written: int = 0,
        lines: int = 0,
        seconds_left: float | None = None,
    ) -> None:
        """Report how far the call is. Reports that follow each other quickly are merged into the newest.

        Raises Canceled if the call should stop.
        """
        if self._channel is None:
            return
        counts = {"current_step": step, "total_steps": of, "bytes_read": bytes_read, "bytes_written": bytes_written}
        report: dict[str, Any] = {name: int(value) for name, value in {**counts, "line_count": lines}.items() if value}
        if percent is not None:
            report["percent"] = _finite(percent)
        if seconds_left is not None:
            report["remaining_seconds"] = _finite(seconds_left)
        if message:
            report["message"] = to_unicode(message, _MAX_TEXT)
        self._channel.progress(report)
        self._channel.raise_canceled()

    def partial(self, value: Any) -> None:
        """Report a part of the result. Raises Canceled if the call should stop, ValueError if the part is too large."""
        if self._channel is None:
            return
        payload = encode(value)
        if len(payload) > self._channel.partial_bytes:
            raise ValueError(f"a part of the result is limited to {self._channel.partial_bytes} bytes")
        self._channel.report("partial", {}, payload)
        self._channel.raise_canceled()

    def ask(self, message: str, schema: dict[str, Any] | None = None) -> Any:
        """Return the caller's answer to a question. The time that it takes is not the tool's.

        `schema` is the JSON Schema of the answer. Raises InputUnavailableError where no caller can answer, and Canceled
        if the call should stop.
        """
        if self._channel is None:
            raise InputUnavailableError("the call was not started as a job, so its caller cannot answer")
        self._channel.raise_canceled()
        asked = time.monotonic()
        fields = {"message": to_unicode(message, _MAX_QUESTION)}
        reply = self._channel.exchange("ask", fields, b"" if schema is None else encode(schema))
        self._ends += time.monotonic() - asked
        if "error" in reply:
            self._channel.raise_canceled()
            raise InputUnavailableError(f"{reply['error']['reason']}: {reply['error']['message']}")
        return reply["value"]

    def checkpoint(self, state: Any, *, event: str = "", label: str = "") -> bool:
        """Save the state to continue from after an interruption. Return False if it is not saved.

        That is so for a call that was not started as a job, and where the store fails; the tool may go on. `event`
        names what was completed, `label` makes a checkpoint that is kept until it is deleted. Raises ValueError if the
        state is too large, and Canceled, after the state is saved, if the call should stop.
        """
        if self._channel is None:
            return False
        payload = encode(state)
        if len(payload) > self._channel.state_bytes:
            raise ValueError(f"the state of a checkpoint is limited to {self._channel.state_bytes} bytes")
        fields = {"event": to_unicode(event, _MAX_LABEL), "label": to_unicode(label, _MAX_LABEL)}
        saved = "error" not in self._channel.exchange("checkpoint", fields, payload)
        self._channel.raise_canceled()
        return saved

    @property
    def canceled(self) -> bool:
        """True if the call should stop. A tool may look at it where raising Canceled would be too late or too early."""
        return self._channel is not None and self._channel.is_canceled()

    def sleep(self, seconds: float) -> None:
        """Wait. Raises Canceled as soon as the call should stop."""
        if self._channel is None:
            time.sleep(seconds)
            return
        self._channel.flush()
        until = time.monotonic() + seconds
        while not self._channel.is_canceled(min(max(0.0, until - time.monotonic()), _POLL_SECONDS)):
            if time.monotonic() >= until:
                break
        self._channel.raise_canceled()

    def _note(self, kind: str, note: Any) -> None:
        notes = self.notes[kind]
        if len(notes) >= MAX_NOTES:
            raise ValueError(f"a call has at most {MAX_NOTES} {kind}")
        notes.append(note)


def _finite(number: float) -> float:
    value = float(number)
    if not -1e15 < value < 1e15:
        raise ValueError("progress must be a finite number")
    return value


def to_unicode(text: object, limit: int | None = None) -> str:
    """Return text as valid Unicode, optionally truncated: file names that are not UTF-8 contain lone surrogates."""
    return str(text)[:limit].encode("utf-8", "replace").decode()


def previewed_by(forecast: Callable[[dict[str, Any], Call], Any]) -> Callable[[F], F]:
    """Set the function that a preview calls instead of the tool. It gets the same arguments, returns the expected
    result, and reports effects, expectations and impact to the call."""

    def decorate(function: F) -> F:
        function.preview = forecast  # type: ignore[attr-defined]
        return function

    return decorate
