"""The log of one call: redacted like its result, also where a secret spans lines."""

from __future__ import annotations

from libs.common.redaction.declared import Declared
from libs.common.redaction.known_values import KnownValues
from libs.common.redaction.scanner import Scanner
from services.executor.domain.run import LogLine, LogSource, RunNotes, RunRequest, RunResult
from services.executor.domain.tool_logs.tool_log import ToolLog, log_of, redact
from services.executor.tests.fakes import World
from services.executor.tests.samples import a_request, a_tool

KEY = ["-----BEGIN PRIVATE KEY-----", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "-----END PRIVATE KEY-----"]


def a_log(*lines: LogLine, scanner: Scanner | None = None) -> ToolLog:
    return ToolLog("i", "core.say", "1.0.0", "acme", "alice", lines, scanners=(scanner or Scanner(),))


def test_lines_are_redacted_and_keep_their_source() -> None:
    known = Scanner().knowing(KnownValues({"plain-words-only"}))
    lines = [LogLine(LogSource.STDOUT, "saw plain-words-only"), LogLine(LogSource.LOG, "mail bob@example.com")]
    redacted = redact(a_log(*lines, scanner=known))
    assert [line.source for line in redacted] == [LogSource.STDOUT, LogSource.LOG]
    assert "plain-words-only" not in redacted[0].text
    assert "bob@example.com" not in redacted[1].text


def test_a_secret_that_spans_lines_is_redacted() -> None:
    redacted = redact(a_log(*(LogLine(LogSource.STDERR, line) for line in KEY)))
    assert KEY[1] not in "".join(line.text for line in redacted)


async def test_a_call_hands_over_its_lines_and_a_silent_one_nothing() -> None:
    world = World(a_tool())
    await world.invoke.execute(a_request())
    assert world.logs.kept == []

    async def run(tool: object, work: RunRequest) -> RunResult:
        work.begin()
        work.notes.lines.append(LogLine(LogSource.STDOUT, "hello"))
        return RunResult({"said": "x"})

    world.runner.run = run  # type: ignore[method-assign]
    result = await world.invoke.execute(a_request())
    [log] = world.logs.kept
    assert (log.invocation_id, log.tool, log.version) == (result.invocation_id, "core.say", "1.0.0")
    assert [line.text for line in log.lines] == ["hello"]


def test_sensitive_values_of_the_result_are_hidden_too() -> None:
    tool = a_tool()
    declared = Declared({"type": "object", "properties": {"pin": {"type": "string", "x-sensitivity": "secret"}}}, ())
    tool = a_tool(output=type(tool.output)(tool.output.violations, declared))
    run = RunRequest("i", {}, 1.0, notes=RunNotes(lines=[LogLine(LogSource.STDOUT, "the pin is walnut-street")]))
    log = log_of(tool, run, RunResult({"pin": "walnut-street"}), Scanner())
    assert "walnut-street" not in redact(log)[0].text
