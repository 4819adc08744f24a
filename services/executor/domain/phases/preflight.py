"""Checks a call before policy is asked: deadline, room in the log, tool and arguments."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import digest
from libs.common.redaction.known_values import known_values
from libs.common.redaction.scanner import Scanner
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.arguments.prepare import PreparedArguments, prepare
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Decision, PayloadDigest, Verdict
from services.executor.domain.payload_summary import scans_inline, summarize_payload
from services.executor.domain.phases.resolve_granted import resolve_granted
from services.executor.domain.ports import AuditTrail, Runner, ToolView
from services.executor.domain.scheduling.offload import Offload
from services.executor.domain.states import State
from services.executor.domain.tool import Tool
from services.executor.domain.validation_cost import size_of_json

# Arguments that are checked against the constraints of a token on the event loop: those may take many steps for each
# byte.
CONFINED_BYTES = 4 * 1024


class Preflight:
    """The request and validate phases of calls and previews."""

    def __init__(
        self,
        *,
        tools: ToolView,
        audit: AuditTrail,
        runner: Runner,
        scanners: TenantScanners,
        offload: Offload,
        clock: Clock,
    ) -> None:
        self._tools, self._audit, self._runner = tools, audit, runner
        self._scanners, self._offload, self._clock = scanners, offload, clock

    def admit(self, invocation: Invocation) -> None:
        """Return if the call has time left and the log has room. Raises DEADLINE_EXCEEDED or AUDIT_BACKPRESSURE."""
        if invocation.deadline.run_until <= self._clock.monotonic():
            raise errors.deadline_exceeded()
        self._audit.admit()

    async def validate(self, invocation: Invocation) -> Tool:
        """Return the tool of the call. The token names it, it can run here, and the arguments satisfy its schema."""
        request = invocation.request
        try:
            tool = invocation.tool = resolve_granted(self._tools, request)
        except errors.ToolUnavailableError as error:
            invocation.unavailable = error.version
            raise
        except MeshError as error:
            if error.reason is Reason.TOOL_NOT_IN_TOKEN:
                # The token decided. Whether the tool exists stays hidden, so no decision about it has a name.
                invocation.decision = Decision("", Verdict.DENY, error.reason, reasons=(error.message,))
            raise
        if request.tool_digest != tool.digest:
            # A caller of a deferred tool must know its schema; a caller that pins a version gets that one or none.
            if tool.deferred:
                raise errors.schema_not_loaded(tool.name)
            if request.tool_digest:
                raise errors.version_changed(tool.name)
        sandbox = self._runner.sandbox_for(tool)
        if sandbox is None:
            raise errors.nothing_runs_it(tool.name, self._runner.missing_for(tool))
        invocation.code, invocation.sandbox = sandbox, str(sandbox)
        invocation.enter(State.SELECTED)
        if tool.key_required and not request.idempotency_key and not invocation.preview:
            raise errors.key_required(tool.qualified)
        prepared, described = await self._prepare(invocation, tool)
        invocation.payload, invocation.scanner, invocation.resources = described
        invocation.arguments, invocation.changes = prepared.arguments, prepared.changes
        if prepared.refusal is not None:
            raise prepared.refusal
        invocation.enter(State.ARGUMENTS_READY)
        return tool

    async def _prepare(self, invocation: Invocation, tool: Tool) -> tuple[PreparedArguments, DescribedArguments]:
        """Prepare the arguments: at once if that is quick, else beside the event loop, within the call's deadline."""
        request = invocation.request
        scanner = self._scanners.of(request.caller.tenant)
        bounded = request.caller.confined is None or len(request.arguments) <= CONFINED_BYTES
        quick = bounded and tool.input.cost.runs_inline(size_of_json(request.arguments))
        invocation.small = quick and scans_inline(request.arguments, tool, scanner)
        return await self._offload.run(invocation, partial(_prepare, tool, request.arguments, scanner))


class DescribedArguments(NamedTuple):
    """What is known about arguments beside their values."""

    payload: PayloadDigest
    """The arguments as records show them."""
    scanner: Scanner
    """Knows their declared sensitive values."""
    resources: tuple[str, ...] = ()
    """The resources that they name; none if they are refused."""


def _prepare(tool: Tool, payload: bytes, scanner: Scanner) -> tuple[PreparedArguments, DescribedArguments]:
    prepared = prepare(tool, payload, tool.argument_spec)
    return prepared, describe_arguments(prepared, tool, scanner)


def describe_arguments(prepared: PreparedArguments, tool: Tool, scanner: Scanner) -> DescribedArguments:
    """Return how records show arguments, the scanner for them, and their resources."""
    scanner = scanner.knowing(known_values(prepared.arguments, tool.input.declared))
    if prepared.refusal is not None:
        # The digest only: arguments that break the schema may hold secrets that the schema does not declare.
        return DescribedArguments(PayloadDigest(digest(prepared.arguments)), scanner)
    resources = () if tool.resources is None else tool.resources(prepared.arguments)
    return DescribedArguments(summarize_payload(prepared.arguments, tool.input, tool, scanner), scanner, resources)
