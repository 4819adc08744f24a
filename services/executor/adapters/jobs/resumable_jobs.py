"""Reads what is kept, encrypted, of jobs that can be resumed."""

from __future__ import annotations

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sealing import Seal, SealError
from libs.common.sql.engine import separately
from services.executor.adapters.jobs.job_store import resumable_context
from services.executor.domain.jobs.job import JobOwner
from services.executor.domain.jobs.requests.resume_invocation import ResumableJob, ResumableRequest
from services.executor.domain.states import State

_FIND = text("""
select state, end_time is not null as ended, resumable_request from jobs
where invocation_id = :invocation_id and tenant = :tenant and subject = :subject
""")
_DECODER = msgspec.msgpack.Decoder(ResumableRequest)


class PostgresResumableJobs:
    """Finds jobs of an owner that can be resumed."""

    def __init__(self, engine: AsyncEngine, seal: Seal) -> None:
        self._engine, self._seal = engine, seal

    async def find(self, owner: JobOwner, invocation_id: str) -> ResumableJob | None:
        """Return a job of an owner; None if there is none. Raises SERVICE_UNAVAILABLE."""
        values = {"invocation_id": invocation_id, "tenant": owner.tenant, "subject": owner.subject}
        async with separately(self._engine) as connection:
            row = (await connection.execute(_FIND, values)).first()
        if row is None:
            return None
        return ResumableJob(State(row.state), row.ended, self._request(invocation_id, row.resumable_request))

    def _request(self, invocation_id: str, sealed: bytes | None) -> ResumableRequest | None:
        if sealed is None:
            return None
        try:
            return _DECODER.decode(self._seal.open(sealed, resumable_context(invocation_id)))
        except (SealError, msgspec.MsgspecError):
            return None
