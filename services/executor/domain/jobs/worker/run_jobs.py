"""Runs jobs: claims them, runs each like any call, and stores its outcome.

A job runs through every phase again, because policy, tool and token may have changed since it was accepted, or since
another replica ran it. The claim of its idempotency key decides whether the tool may run again after a take-over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from libs.common.errors import MeshError, Reason
from libs.common.runtime.backoff import Backoff
from libs.common.runtime.clock import Clock
from libs.common.runtime.retry import retry_until
from services.executor.domain import errors
from services.executor.domain.checkpoints.checkpoint import RestoredState
from services.executor.domain.checkpoints.errors import checkpoint_corrupted
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.idempotency.unknown_outcome import MOST_RUNS
from services.executor.domain.invocation import Invocation
from services.executor.domain.invoke.invoke import Invoke
from services.executor.domain.jobs.job import ClaimedJob, Renewal
from services.executor.domain.jobs.ports import CallerSessions, JobLeases, JobSignals
from services.executor.domain.jobs.reports.job_channel import JobChannel, JobChannels
from services.executor.domain.jobs.worker.await_approvals import AwaitApprovals
from services.executor.domain.jobs.worker.run_checkpoints import RunCheckpoints
from services.executor.domain.model import Request, Result
from services.executor.domain.ports import Observer
from services.executor.domain.states import State
from services.executor.domain.tool import Tool

POLL_SECONDS = 1.0
# Rounds begin at least this far apart, however many signals come.
MIN_INTERVAL_SECONDS = 0.02
RENEWALS_PER_LEASE = 4
# How long the outcome of a job is offered to a store that does not answer. After that another replica takes it over.
FINISH_SECONDS = 60.0
# How long the last reports of a run are offered to a store that does not answer. Its outcome is worth more.
FLUSH_SECONDS = 5.0
# How long jobs of a tool that this executor lacks are left to others. Packs change with a restart only.
NOT_HERE_SECONDS = 60.0
# How much longer than the grace of a cancellation a runner may take to stop its tool.
CANCEL_MARGIN_SECONDS = 3.0
_STORE_SECONDS = 5.0
_FIRST_RETRY, _LAST_RETRY = 1.0, 60.0


class JobRunner:
    """Claims and runs jobs in this process, and renews their claims."""

    def __init__(
        self,
        invoke: Invoke,
        leases: JobLeases,
        channels: JobChannels,
        sessions: CallerSessions,
        signals: JobSignals,
        observer: Observer,
        clock: Clock,
        checkpoints: Callable[[ClaimedJob], RunCheckpoints],
        approvals: AwaitApprovals,
        *,
        max_running: int,
        lease_seconds: float,
        cancel_seconds: float,
    ) -> None:
        """`cancel_seconds` is how long a runner gives a canceled tool to stop and to end."""
        self._invoke, self._leases, self._channels = invoke, leases, channels
        self._sessions, self._signals = sessions, signals
        self._observer, self._clock, self._checkpoints = observer, clock, checkpoints
        self._approvals = approvals
        self._max_running, self._renew_seconds = max_running, lease_seconds / RENEWALS_PER_LEASE
        self._cancel_seconds = cancel_seconds + CANCEL_MARGIN_SECONDS
        self._running: dict[str, _Run] = {}
        self._renewal_due = 0.0
        self._not_here: dict[str, float] = {}
        """Tool versions that this executor lacks, and until when they are left to others."""
        self._loops: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start to claim jobs."""
        loops = {"claim-jobs": self._claim_free, "renew-jobs": self._renew}
        self._loops = [asyncio.create_task(self._forever(step), name=name) for name, step in loops.items()]

    async def stop(self) -> None:
        """Stop to claim jobs, and give those that still run to other replicas."""
        for task in self._loops:
            task.cancel()
        runs = [run.task for run in self._running.values() if run.task is not None]
        for task in runs:
            task.cancel()
        if self._loops or runs:
            await asyncio.wait([*self._loops, *runs])

    async def _forever(self, step: Callable[[], Awaitable[None]]) -> None:
        # Never longer than a renewal is due: the claims must not run out after the store is back.
        backoff = Backoff(min(_FIRST_RETRY, self._renew_seconds), self._renew_seconds)
        while True:
            try:
                await asyncio.sleep(MIN_INTERVAL_SECONDS)
                await step()
                backoff.reset()
            except Exception as cause:
                # The store does not answer. Claims of this process run out meanwhile, and others take them over.
                self._observer.unexpected(cause)
                await backoff.wait()

    async def _claim_free(self) -> None:
        """Claim as many jobs as there is room for; wait for a signal where there are none."""
        woken = self._signals.next_wake()
        free = self._max_running - len(self._running)
        claimed = await self._leases.claim(free, self._unrunnable()) if free > 0 else ()
        for job in claimed:
            run = self._running[job.invocation_id] = _Run(job)
            run.task = asyncio.create_task(self._run(run), name=f"job-{job.invocation_id}")
        if not claimed:
            await asyncio.wait([woken], timeout=POLL_SECONDS)

    async def _renew(self) -> None:
        """Renew all claims when they are due; between, only look what callers want.

        Stops the runs that lost their claim, and those whose owner cancels them.
        """
        woken, now = self._signals.next_wake(), self._clock.monotonic()
        held = [run.job for run in self._running.values()]
        if now >= self._renewal_due:
            renewed = await self._leases.renew(held) if held else {}
            self._renewal_due = now + self._renew_seconds
            for job in held:
                if job.invocation_id not in renewed and (run := self._run_of(job)) is not None:
                    run.lose()
        else:
            renewed = await self._leases.requests(held) if held else {}
        for job in held:
            if (renewal := renewed.get(job.invocation_id)) is not None and (run := self._run_of(job)) is not None:
                self._carry_out(run, renewal)
        await asyncio.wait([woken], timeout=max(self._renewal_due - self._clock.monotonic(), MIN_INTERVAL_SECONDS))

    def _run_of(self, job: ClaimedJob) -> _Run | None:
        """Return the run of a claim, if it is still under way."""
        run = self._running.get(job.invocation_id)
        return run if run is not None and run.job is job else None

    def _carry_out(self, run: _Run, renewal: Renewal) -> None:
        if renewal.answered and run.channel is not None:
            run.channel.note_answered(renewal.answered)
        if renewal.cancel_requested:
            self._cancel(run)

    def _unrunnable(self) -> list[str]:
        now = self._clock.monotonic()
        self._not_here = {version: until for version, until in self._not_here.items() if until > now}
        return list(self._not_here)

    def _cancel(self, run: _Run) -> None:
        """Let the tool stop by itself where it can, and stop it after its grace; stop others at once."""
        invocation = run.invocation
        if invocation is None or run.canceled:
            return
        cooperates = invocation.tool is not None and invocation.tool.cancellation_supported
        if cooperates and invocation.attempts and run.channel is not None:
            run.canceled = True
            run.channel.cancel("canceled by its caller")
            stop = partial(self._invoke.stop, invocation.request, errors.canceled("grace_over"))
            run.grace = asyncio.get_running_loop().call_later(self._cancel_seconds, stop)
        else:
            how = "not_supported" if invocation.attempts else ""
            run.canceled = self._invoke.stop(invocation.request, errors.canceled(how))

    async def _run(self, run: _Run) -> None:
        try:
            outcome, state = await self._execute(run)
            await self._finish(run, outcome, state)
        except asyncio.CancelledError:
            if not run.lost:
                # Without it another replica claims the job when the lease expires.
                with suppress(MeshError):
                    await self._leases.give_back(run.job)
            raise
        except Exception as cause:
            # The lease is not renewed any more, so another replica takes the job over.
            self._observer.unexpected(cause)
        finally:
            run.close()
            self._running.pop(run.job.invocation_id, None)
            self._signals.wake()
            self._channels.readers.wake()

    async def _execute(self, run: _Run) -> tuple[Result | MeshError, State]:
        job = run.job
        deadline = self._clock.monotonic() + job.seconds_left
        stored = replace(job.request, deadline=deadline)
        try:
            if job.cancel_requested:
                raise errors.canceled()
            if job.losses >= MOST_RUNS and not stored.idempotency_key:
                # The claim of a key has a bound of its own.
                raise key_errors.owners_lost("")
            caller = await self._sessions.resume(job.token, stored, deadline)
        except MeshError as error:
            invocation = self._invocation(stored, job)
            return await self._invoke.record_failure(invocation, error), invocation.state
        run.invocation = invocation = self._invocation(replace(stored, caller=caller), job)
        checkpoints = self._checkpoints(job)
        channel = invocation.channel = run.channel = self._channels.open(job, invocation, checkpoints)
        checkpoints.on_saved = channel.note_checkpoint
        checkpoints.on_left_out = partial(channel.log, "warning")
        invocation.restore = checkpoints.restore if job.losses < MOST_RUNS else None
        invocation.before_run = lambda: self._begin(run, invocation, checkpoints, channel)
        try:
            result = await self._invoke.run(invocation)
            checkpoints.close()
            return result, invocation.state
        except MeshError as error:
            # A tool with checkpoints goes on from the newest one. Without, a run that lost its claim is repeated: the
            # key finds the outcome, or the rule of the tool decides.
            interrupted = error.reason is Reason.SERVICE_UNAVAILABLE and (
                checkpoints.enabled or error.metadata.get("state") == key_errors.CLAIM_LOST
            )
            run.ran = bool(invocation.attempts) and not interrupted
            return error, invocation.state
        finally:
            # What the tool saved last is there for a resumption, and for the replica that gets the job.
            await checkpoints.flush()

    def _invocation(self, request: Request, job: ClaimedJob) -> Invocation:
        return Invocation(request, self._clock, None, invocation_id=job.invocation_id, attempt=job.attempt)

    async def _begin(self, run: _Run, invocation: Invocation, checkpoints: RunCheckpoints, channel: JobChannel) -> None:
        """Note that the tool starts, and where. Raises when this process no longer holds the job, or the log does not
        answer."""
        restored = RestoredState() if invocation.tool is None else await checkpoints.restore(invocation.tool)
        if run.job.resumed_from and restored.state is None and not _repeatable(invocation.tool):
            # It was to continue; from the beginning it could have its effects again.
            raise checkpoint_corrupted(f"invocations/{run.job.invocation_id}/checkpoints/1")
        invocation.resumed_from = restored.source
        if run.job.taken_over:
            await self._channels.records.taken_over(invocation)
        await self._channels.records.started(invocation)
        if not await self._leases.begin(run.job, restored.source):
            raise key_errors.claim_lost()
        if restored.checkpoint is not None:
            channel.note_checkpoint(restored.checkpoint)
        self._channels.readers.wake()

    async def _finish(self, run: _Run, outcome: Result | MeshError, state: State) -> None:
        if run.lost:
            return
        if isinstance(outcome, MeshError) and outcome.metadata.get("state") == errors.NO_RUNNER and not run.ran:
            self._not_here[outcome.metadata["tool_version"]] = self._clock.monotonic() + NOT_HERE_SECONDS
            await self._leases.give_back(run.job)
            return
        if isinstance(outcome, MeshError) and not run.ran and not run.canceled and (ticket := awaited_ticket(outcome)):
            await self._approvals.wait(run.job, ticket)
            return
        if isinstance(outcome, MeshError) and _passes(outcome) and not run.ran and not run.canceled:
            # Nothing ran, and a repetition may succeed: the job goes on until its deadline.
            step = min(_FIRST_RETRY * 2 ** min(run.job.attempt, 10), _LAST_RETRY)
            await self._leases.give_back(run.job, max(outcome.retry_after or 0.0, step))
            return
        if run.job.ticket and isinstance(outcome, MeshError) and not run.ran:
            await self._approvals.withdraw(run.job.ticket)
        if run.channel is not None:
            # The last report comes before the end.
            await run.channel.finish(FLUSH_SECONDS)

        async def finish() -> None:
            await self._leases.finish(run.job, state, outcome)

        try:
            await finish()
        except MeshError as cause:
            self._observer.unexpected(cause)
            await retry_until(finish, attempt_timeout=_STORE_SECONDS, time_budget=FINISH_SECONDS)


def awaited_ticket(error: MeshError) -> str:
    """Return the ticket that a call must wait for, by its error; empty for none."""
    return error.metadata.get("ticket", "") if error.reason is Reason.APPROVAL_REQUIRED else ""


def _passes(error: MeshError) -> bool:
    """Return whether a repetition may succeed. The deadline is that of the job, so it never does after that."""
    return error.row.retryable and error.reason is not Reason.DEADLINE_EXCEEDED


def _repeatable(tool: Tool | None) -> bool:
    return tool is not None and tool.repeatable


class _Run:
    """One job under way in this process."""

    __slots__ = ("canceled", "channel", "grace", "invocation", "job", "lost", "ran", "task")

    def __init__(self, job: ClaimedJob) -> None:
        self.job = job
        self.task: asyncio.Task[None] | None = None
        self.invocation: Invocation | None = None
        self.channel: JobChannel | None = None
        self.grace: asyncio.TimerHandle | None = None
        self.lost = self.canceled = self.ran = False

    def lose(self) -> None:
        """Stop the run: another replica may run the job by now."""
        self.lost = True
        if self.task is not None:
            self.task.cancel()

    def close(self) -> None:
        """Store and stop nothing more."""
        if self.grace is not None:
            self.grace.cancel()
        if self.channel is not None:
            self.channel.close()
