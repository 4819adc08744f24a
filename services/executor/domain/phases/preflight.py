"""Checks a call before policy is asked: deadline, room in the log, tool and arguments."""

from __future__ import annotations

from libs.common.errors import MeshError
from libs.common.json.canonical import digest
from libs.common.redaction.known_values import known_values
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.arguments.prepare import prepare
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import PayloadDigest
from services.executor.domain.payload_summary import summarize_payload
from services.executor.domain.ports import AuditTrail, Runner, ToolView
from services.executor.domain.states import State
from services.executor.domain.tool import Tool


class Preflight:
    """The request and validate phases of calls and previews."""

    def __init__(
        self, *, tools: ToolView, audit: AuditTrail, runner: Runner, scanners: TenantScanners, clock: Clock
    ) -> None:
        self._tools, self._audit, self._runner = tools, audit, runner
        self._scanners, self._clock = scanners, clock

    def admit(self, invocation: Invocation) -> None:
        """Return if the call has time left and the log has room. Raises DEADLINE_EXCEEDED or AUDIT_BACKPRESSURE."""
        if invocation.deadline.run_until <= self._clock.monotonic():
            raise errors.deadline_exceeded()
        self._audit.admit()

    def validate(self, invocation: Invocation) -> Tool:
        """Return the tool of the call. It can run here, and the arguments satisfy its schema."""
        request = invocation.request
        tool = invocation.tool = self._tools.resolve(request.tool, request.version)
        if request.tool_digest != tool.digest:
            # A caller of a deferred tool must know its schema; a caller that pins a version gets that one or none.
            if tool.deferred:
                raise errors.schema_not_loaded(tool.name)
            if request.tool_digest:
                raise errors.version_changed(tool.name)
        sandbox = self._runner.sandbox_for(tool)
        if sandbox is None:
            raise errors.nothing_runs_it(tool.name)
        invocation.sandbox = sandbox
        invocation.enter(State.SELECTED)
        if tool.key_required and not request.idempotency_key and not invocation.preview:
            raise errors.key_required(tool.qualified)
        prepared = prepare(tool, request.arguments, tool.argument_spec)
        invocation.arguments, invocation.changes = prepared.arguments, prepared.changes
        accept_arguments(invocation, tool, prepared.refusal, self._scanners)
        invocation.enter(State.ARGUMENTS_READY)
        return tool


def accept_arguments(invocation: Invocation, tool: Tool, refusal: MeshError | None, scanners: TenantScanners) -> None:
    """Note on the invocation how records show its arguments, then raise the refusal if there is one."""
    scanner = scanners.of(invocation.request.caller.tenant)
    scanner = invocation.scanner = scanner.knowing(known_values(invocation.arguments, tool.input.declared))
    if refusal is not None:
        # The digest only: arguments that break the schema may hold secrets that the schema does not declare.
        invocation.payload = PayloadDigest(digest(invocation.arguments))
        raise refusal
    invocation.payload = summarize_payload(invocation.arguments, tool.input, tool, scanner)
