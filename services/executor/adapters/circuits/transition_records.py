"""Records the changes of circuits in the audit log, in the background."""

from __future__ import annotations

import asyncio
from contextvars import Context

from libs.audit_client.act import Act, ActEncoder, ActKind
from libs.common.errors import MeshError
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.executor.adapters.audit.record_encoder import WRITER, encode_fragment
from services.executor.domain.model import EncodedRecord
from services.executor.domain.ports import AuditTrail
from services.executor.domain.resilience.circuit import Transition

_WRITE_SECONDS = 60.0
_MAX_WAITING = 1024


class TransitionRecords:
    """Writes one record for each change. While the log is away, a change waits for it for a minute."""

    def __init__(self, trail: AuditTrail, clock: Clock, log: Log) -> None:
        self._trail, self._clock, self._log = trail, clock, log
        self._encoder = ActEncoder(WRITER)
        self._writing: set[asyncio.Task[None]] = set()

    def record(self, name: str, transition: Transition, shared: bool) -> None:
        """Record a change. Never waits."""
        if len(self._writing) >= _MAX_WAITING:
            self._log.warning("circuit change not recorded", circuit=name, cause="too_many")
            return
        act = Act(
            kind=ActKind.CIRCUIT_CHANGED,
            resource=f"circuits/{name}",
            time=self._clock.now(),
            previous_state=transition.before,
            state=transition.after,
            details={"shared": shared},
        )
        # Not in the context of the call that made the change: a circuit belongs to no caller.
        encoded = Context().run(self._encoder.encode, act)
        task = asyncio.create_task(self._write(name, EncodedRecord(encoded.record_id, encode_fragment(encoded.form))))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def stop(self) -> None:
        """Wait for the records that are being written."""
        if self._writing:
            _, late = await asyncio.wait(self._writing, timeout=2.0)
            for task in late:
                task.cancel()

    async def _write(self, name: str, record: EncodedRecord) -> None:
        try:
            await self._trail.restore(record, within=_WRITE_SECONDS)
        except MeshError as error:
            self._log.warning("circuit change not recorded", circuit=name, cause=error.reason.name)
