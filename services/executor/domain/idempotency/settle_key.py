"""SettleKey: an operator states whether the effect behind a key happened. The act is recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace

from libs.common.errors import MeshError
from libs.common.ids import new_id
from libs.common.json.canonical import digest
from libs.common.json.jsonio import dump, parse
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.idempotency.list_keys import get_key
from services.executor.domain.idempotency.stored_key import SETTLEABLE, KeyState, StoredKey
from services.executor.domain.model import Caller, Event, PayloadDigest, Record, Request, Result, Source, Status
from services.executor.domain.ports import KeyStore, ToolView
from services.executor.domain.states import State
from services.executor.domain.tool import Tool


@dataclass(frozen=True)
class Settlement:
    """The finding of an operator."""

    name: str
    result: bytes | None
    """The result of the call as JSON; None if the effect did not happen."""
    reason: str
    caller: Caller
    tenant: str | None
    """The tenant whose keys the caller reaches; None for all."""
    trace_id: str = ""


@dataclass(frozen=True)
class SettleKey:
    """Stores the outcome that an operator found out, or frees the key."""

    keys: KeyStore
    tools: ToolView
    scanners: TenantScanners
    clock: Clock

    async def execute(self, settlement: Settlement) -> tuple[StoredKey, str]:
        """Return the settled key and the id of the act's record.

        Raises NOT_FOUND; FAILED_PRECONDITION if its outcome is known or its call is under way; RESULT_INVALID or
        RESULT_TOO_LARGE for a result that the tool may not return.
        """
        key = await get_key(self.keys, settlement.name, settlement.tenant)
        if key.state not in SETTLEABLE:
            raise key_errors.key_not_settleable(key.name, key.state)
        tool = self._resolve(key) if settlement.result is None else self.tools.resolve(key.tool, "")
        record = self._record(settlement, key, tool)
        result = None
        if tool is not None and settlement.result is not None:
            result = self._result(settlement, key, tool, record)
        if not await self.keys.settle(key, result, record):
            raise key_errors.key_not_settleable(key.name, "changed")
        state = KeyState.FAILED if result is None else KeyState.SUCCEEDED
        return replace(key, state=state, unresolved=()), record.record_id

    def _resolve(self, key: StoredKey) -> Tool | None:
        """Return the tool of a key; None if it is gone, which does not matter to a call that had no effect."""
        try:
            return self.tools.resolve(key.tool, "")
        except MeshError:
            return None

    def _result(self, settlement: Settlement, key: StoredKey, tool: Tool, record: Record) -> Result:
        content = settlement.result or b""
        if len(content) > tool.max_result_bytes:
            raise errors.result_too_large(len(content), tool.max_result_bytes)
        value = parse(content, max_bytes=len(content))
        violations = tool.output.violations(value)
        if violations:
            raise errors.result_invalid(violations)
        return Result(
            result_id=new_id(),
            invocation_id=record.invocation_id,
            content=dump(value),
            tool_version=tool.name,
            tool_digest=tool.digest,
            source=Source.REPLAY,
            created=self.clock.now(),
            total=0.0,
            phases=(),
            attempts=len(key.unresolved),
            sandbox="",
            trace_id=settlement.trace_id,
            evidence=(f"records/{record.record_id}",),
            replayed=True,
        )

    def _record(self, settlement: Settlement, key: StoredKey, tool: Tool | None) -> Record:
        reason = str(self.scanners.of(key.tenant).text(settlement.reason).value)
        happened = settlement.result is not None
        finding = {"key": key.name, "effect": "happened" if happened else "absent", "reason": reason}
        return Record(
            record_id=new_id(),
            event=Event.KEY_SETTLED,
            time=self.clock.now(),
            invocation_id=key.unresolved[0] if key.unresolved else key.invocation_id,
            request=Request(key.tool, settlement.caller, idempotency_key=key.key, trace_id=settlement.trace_id),
            tool=tool,
            previous_state=None,
            state=State.SUCCEEDED if happened else State.FAILED,
            status=Status.SUCCESS,
            arguments=PayloadDigest(key.arguments_digest),
            result=PayloadDigest(digest(finding), dump(finding)),
            resource=key.name,
            act_reason=reason,
        )
